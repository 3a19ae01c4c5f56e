"""Custom logit processors at tree nodes: each sees the state of its request at the node.

SGLang gives a processor the request itself (`custom_params["__req__"]`). A processor that reads
`output_ids` there must find the node's own path after the committed tokens, as it would when the
path is decoded token by token. Pure, except for what the processors themselves do.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch

    from jetspec_sglang.tree import Tree

REQUEST = "__req__"
"""SGLang's key of the request in a processor's parameters."""


class RequestAtNode:
    """A request with the tokens of one path after its own. All other attributes are the
    request's."""

    __slots__ = ("_req", "output_ids")

    def __init__(self, req: Any, path: list[int]) -> None:
        self._req = req
        self.output_ids = array("q", [*req.output_ids, *path])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._req, name)


def apply_processors(
    batch: ScheduleBatch, logits: torch.Tensor, tree: Tree, node_tokens: torch.Tensor
) -> None:
    """Let every processor of the batch adjust its rows of logits [bs * B, vocab] in place.

    node_tokens int64 [bs, B], the last committed token in column 0.
    """
    info = batch.sampling_info
    budget = tree.budget
    parents, tokens = tree.parents.tolist(), node_tokens.tolist()
    params = {
        row: [
            _at_node(info.custom_params[row], batch.reqs[row], path)
            for path in paths(parents[row], tokens[row])
        ]
        for entry in info.custom_logit_processor.values()
        for row in entry.rows
    }
    nodes = torch.arange(budget, device=logits.device)
    for entry in info.custom_logit_processor.values():
        rows = (entry.indices[:, None] * budget + nodes).flatten()
        given = [param for row in entry.rows for param in params[row]]
        result = entry.processor(logits.index_select(0, rows), given)
        logits.index_copy_(0, rows, result.to(logits.dtype))


def paths(parents: list[int], tokens: list[int]) -> Iterator[list[int]]:
    """The tokens from the root, left out, to each node. Padding has the root's."""
    found: list[list[int]] = []
    for node, parent in enumerate(parents):
        found.append([] if parent < 0 else [*found[parent], tokens[node]])
    yield from found


def _at_node(params: Any, req: Any, path: list[int]) -> Any:
    if not isinstance(params, dict) or REQUEST not in params:
        return params
    return {**params, REQUEST: RequestAtNode(req, path)}
