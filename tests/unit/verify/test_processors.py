"""Custom logit processors see the path of the node whose logits they change."""

from array import array
from types import SimpleNamespace

import torch

from jetspec_sglang.tree import Tree
from jetspec_sglang.verify.processors import apply_processors

VOCAB = 8
PARENTS = [[-1, 0, 0, 1, 3], [-1, 0, 1, 2, 2]]
TOKENS = [[5, 1, 2, 3, 4], [6, 2, 3, 1, 7]]
OUTPUTS = [[9, 5], [6]]


def tree():
    parents = torch.tensor(PARENTS)
    return Tree(
        tokens=torch.tensor(TOKENS),
        parents=parents,
        depths=torch.zeros_like(parents),
        scores=torch.zeros(2, 5),
        sizes=torch.tensor([5, 5]),
    )


def batch(processor, rows):
    reqs = [
        SimpleNamespace(output_ids=array("q", outputs), origin_input_ids=array("q", [0]))
        for outputs in OUTPUTS
    ]
    entry = SimpleNamespace(rows=rows, indices=torch.tensor(rows), processor=processor)
    params = [{"__req__": req, "mine": i} for i, req in enumerate(reqs)]
    info = SimpleNamespace(custom_params=params, custom_logit_processor={0: entry})
    return SimpleNamespace(reqs=reqs, sampling_info=info)


def test_each_node_is_seen_behind_its_own_path():
    seen = []

    def processor(logits, params):
        for row, param in zip(logits, params, strict=True):
            req = param["__req__"]
            seen.append((param["mine"], list(req.origin_input_ids + req.output_ids)))
            row[req.output_ids[-1] % VOCAB] = 100.0
        return logits

    logits = torch.zeros(10, VOCAB)
    given = batch(processor, [0, 1])
    apply_processors(given, logits, tree(), torch.tensor(TOKENS))
    assert seen == [
        (0, [0, 9, 5]),
        (0, [0, 9, 5, 1]),
        (0, [0, 9, 5, 2]),
        (0, [0, 9, 5, 1, 3]),
        (0, [0, 9, 5, 1, 3, 4]),
        (1, [0, 6]),
        (1, [0, 6, 2]),
        (1, [0, 6, 2, 3]),
        (1, [0, 6, 2, 3, 1]),
        (1, [0, 6, 2, 3, 7]),
    ]
    assert logits.argmax(-1).tolist() == [5, 1, 2, 3, 4, 6, 2, 3, 1, 7]
    assert [list(req.output_ids) for req in given.reqs] == OUTPUTS


def test_other_requests_are_left_alone():
    logits = torch.zeros(10, VOCAB)
    apply_processors(batch(lambda x, _: x + 1, [1]), logits, tree(), torch.tensor(TOKENS))
    assert logits[:5].sum() == 0
    assert logits[5:].min() == 1
