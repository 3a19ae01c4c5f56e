"""What runs on a GPU in a round, in small: the same trees and masks as on the CPU, without a wait,
and FlashInfer's attention under such a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from jetspec_sglang.device.cuda import flat_mask
from jetspec_sglang.tree import RULES, build_tree
from jetspec_sglang.tree.tensors import build_tensors

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
WIDTH = 24
PREFIXES = (0, 5, 130)


def lattice(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates (tokens, log-probs) of three requests at seven depths, four each."""
    generator = torch.Generator().manual_seed(seed)
    logprobs = torch.randn(len(PREFIXES), 7, 4, generator=generator).log_softmax(-1)
    return torch.arange(100, 100 + logprobs.numel()).view(logprobs.shape), logprobs.sort(
        dim=-1, descending=True
    ).values


@contextmanager
def no_wait() -> Iterator[None]:
    """Any operation that waits for the GPU raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("rule", RULES)
def test_the_same_tree_as_on_the_cpu(rule: str) -> None:
    expected = build_tree(*lattice(), WIDTH, rule)
    tokens, logprobs = (part.to(DEVICE) for part in lattice())
    with no_wait():
        tree = build_tensors(tokens, logprobs, WIDTH, rule)
    for field in ("tokens", "parents", "depths", "scores", "sizes"):
        assert torch.equal(getattr(tree, field).cpu(), getattr(expected, field)), field


def test_the_same_mask_as_on_the_cpu() -> None:
    parents, prefixes = build_tree(*lattice(), WIDTH).parents, torch.tensor(PREFIXES)
    expected = flat_mask(parents, prefixes, sum(PREFIXES))
    on_gpu = parents.to(DEVICE), prefixes.to(DEVICE)
    with no_wait():
        mask = flat_mask(*on_gpu, sum(PREFIXES))
    assert torch.equal(mask.cpu(), expected)


def test_flashinfer_lets_every_node_see_what_the_mask_says() -> None:
    """Against a softmax over the visible keys alone, in float64; pages of one token."""
    flashinfer = pytest.importorskip("flashinfer")
    heads, kv_heads, size, requests = 4, 2, 64, len(PREFIXES)
    parents = build_tree(*lattice(), WIDTH).parents.to(DEVICE)
    lengths = torch.tensor(PREFIXES) + WIDTH
    mask = flat_mask(parents, torch.tensor(PREFIXES, device=DEVICE), sum(PREFIXES))
    generator = torch.Generator(DEVICE).manual_seed(0)
    random = {"dtype": torch.float16, "device": DEVICE, "generator": generator}
    queries = torch.randn(requests * WIDTH, heads, size, **random)
    cache = torch.randn(int(lengths.sum()), 2, 1, kv_heads, size, **random)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])

    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        torch.zeros(128 << 20, dtype=torch.uint8, device=DEVICE), "NHD"
    )
    integers = {"dtype": torch.int32, "device": DEVICE}
    wrapper.plan(
        torch.arange(0, requests * WIDTH + 1, WIDTH, **integers),
        starts.to(**integers),
        torch.arange(len(cache), **integers),
        torch.ones(requests, **integers),
        *(heads, kv_heads, size, 1),
        custom_mask=mask,
    )
    found = wrapper.run(queries, cache).view(requests, WIDTH, heads, size)

    begin = 0
    for i, length in enumerate(lengths.tolist()):
        visible = mask[begin : begin + WIDTH * length].view(WIDTH, length)
        begin += visible.numel()
        keys, values = cache[starts[i] : starts[i + 1], :, 0].double().unbind(1)
        group = heads // kv_heads
        keys, values = (part.repeat_interleave(group, 1) for part in (keys, values))
        own = queries[i * WIDTH : (i + 1) * WIDTH].double()
        scores = torch.einsum("qhd,khd->hqk", own, keys) / size**0.5
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        expected = torch.einsum("hqk,khd->qhd", weights, values)
        torch.testing.assert_close(found[i].double(), expected, rtol=5e-3, atol=5e-3)
