"""The kernel against float64, and the property the engine's losslessness rests on: a row's bits
depend on its own keys alone."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspec_sglang.host.kernels import Dot, MaskMode, attention, dots, set_threads

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
WAYS = [
    (torch.float32, Dot.FLOAT),
    (torch.float16, Dot.FLOAT),
    *((torch.bfloat16, dot) for dot in dots(torch.bfloat16)),
]
"""Every dtype, with every way in which this CPU can multiply it."""
WIDTH = 700  # columns of req_to_token


@dataclass(frozen=True)
class Call:
    q: torch.Tensor
    k_pool: torch.Tensor
    v_pool: torch.Tensor
    req_to_token: torch.Tensor
    req_pool_indices: torch.Tensor
    prefix_lens: torch.Tensor
    row_starts: torch.Tensor
    parents: torch.Tensor
    mode: MaskMode
    logit_cap: float = 0.0
    dot: Dot | None = None

    @property
    def scale(self) -> float:
        return self.q.shape[2] ** -0.5

    def run(self) -> torch.Tensor:
        out = self.q.new_full((*self.q.shape[:2], self.v_pool.shape[2]), torch.nan)
        attention(
            self.q, self.k_pool, self.v_pool, out, self.req_to_token, self.req_pool_indices,
            self.prefix_lens, self.row_starts, self.parents, self.mode, self.scale, self.logit_cap,
            self.dot,
        )  # fmt: skip
        return out

    def bounds(self, request: int) -> tuple[int, int, int]:
        """First and last row, prefix length."""
        starts = self.row_starts.tolist()
        return starts[request], starts[request + 1], int(self.prefix_lens[request])

    def slots(self, request: int) -> torch.Tensor:
        return self.req_to_token[self.req_pool_indices[request]].long()

    def path(self, request: int, row: int) -> list[int]:
        """The request's rows that a row sees, first to last."""
        first, last, _ = self.bounds(request)
        if self.mode is MaskMode.CAUSAL:
            return list(range(row + 1))
        if self.mode is MaskMode.FULL:
            return list(range(last - first))
        seen = []
        while row > 0:
            seen.append(row)
            row = int(self.parents[first + row])
        return [0, *reversed(seen)]

    def expected(self) -> torch.Tensor:
        """Row by row in float64."""
        group = self.q.shape[1] // self.k_pool.shape[1]
        out = torch.full((*self.q.shape[:2], self.v_pool.shape[2]), torch.nan, dtype=torch.float64)
        for request in range(len(self.prefix_lens)):
            first, last, prefix = self.bounds(request)
            for row in range(last - first):
                places = [*range(prefix), *(prefix + seen for seen in self.path(request, row))]
                slots = self.slots(request)[places]
                keys = self.k_pool[slots].double().repeat_interleave(group, dim=1)
                values = self.v_pool[slots].double().repeat_interleave(group, dim=1)
                scores = torch.einsum("hd,shd->hs", self.q[first + row].double(), keys) * self.scale
                if self.logit_cap:
                    scores = self.logit_cap * torch.tanh(scores / self.logit_cap)
                out[first + row] = torch.einsum("hs,shd->hd", scores.softmax(1), values)
        return out


def make_call(
    prefixes: list[int],
    rows: list[int],
    mode: MaskMode,
    seed: int = 0,
    heads: tuple[int, int] = (3, 1),
    dims: tuple[int, int] = (64, 64),
    dtype: torch.dtype = torch.float32,
    pool_dtype: torch.dtype | None = None,
    logit_cap: float = 0.0,
    branching: int = 3,
) -> Call:
    g = torch.Generator().manual_seed(seed)
    bs, slots = len(rows), len(rows) * WIDTH
    parents = [
        int(torch.randint(max(0, row - branching), row, (), generator=g)) if row else -1
        for count in rows
        for row in range(count)
    ]

    def normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(shape, generator=g).to(dtype)

    pool_dtype = pool_dtype or dtype
    return Call(
        q=normal(sum(rows), heads[0], dims[0], dtype=dtype),
        k_pool=normal(slots, heads[1], dims[0], dtype=pool_dtype),
        v_pool=normal(slots, heads[1], dims[1], dtype=pool_dtype),
        req_to_token=torch.randperm(slots, generator=g).view(bs, WIDTH).int(),
        req_pool_indices=torch.randperm(bs, generator=g),
        prefix_lens=torch.tensor(prefixes),
        row_starts=torch.tensor([0, *rows]).cumsum(0),
        parents=torch.tensor(parents, dtype=torch.int64),
        mode=mode,
        logit_cap=logit_cap,
    )


@st.composite
def calls(draw):
    bs = draw(st.integers(1, 3))
    kv_heads = draw(st.integers(1, 3))
    k_dim = draw(st.sampled_from([16, 64, 96, 128]))
    dtype, dot = draw(st.sampled_from(WAYS))
    prefix = st.one_of(st.integers(0, 3), st.integers(120, 136), st.integers(250, 300))
    call = make_call(
        prefixes=draw(st.lists(prefix, min_size=bs, max_size=bs)),
        rows=draw(st.lists(st.integers(1, 24), min_size=bs, max_size=bs)),
        mode=draw(st.sampled_from(list(MaskMode))),
        seed=draw(st.integers(0, 1000)),
        heads=(kv_heads * draw(st.integers(1, 6)), kv_heads),
        dims=(k_dim, draw(st.sampled_from([k_dim, 80]))),
        dtype=dtype,
        pool_dtype=draw(st.sampled_from([dtype, torch.bfloat16])),
        logit_cap=draw(st.sampled_from([0.0, 5.0])),
        branching=draw(st.sampled_from([1, 3, 100])),
    )
    return replace(call, dot=dot if call.q.dtype == call.k_pool.dtype else None)


def assert_close(call: Call) -> None:
    error = (call.run().double() - call.expected()).abs().max()
    assert error < TOLERANCE[call.q.dtype]


@settings(max_examples=30, deadline=None)
@given(calls())
def test_equals_float64_attention(call):
    assert_close(call)


def test_a_wide_tree_and_a_long_prefill():
    assert_close(make_call([130], [256], MaskMode.TREE, branching=40))
    assert_close(make_call([77], [400], MaskMode.CAUSAL))


def test_large_scores_do_not_overflow():
    call = make_call([200], [5], MaskMode.CAUSAL)
    call = replace(call, q=call.q * 1000)
    assert torch.allclose(call.run().double(), call.expected(), atol=1e-3)


def test_padding_sees_the_prefix_the_root_and_itself():
    call = make_call([20], [6], MaskMode.TREE)
    parents = torch.tensor([-1, 0, 1, -1, -1, -1])
    call = replace(call, parents=parents)
    assert call.path(0, 4) == [0, 4]
    assert_close(call)


def test_rows_may_be_views_of_a_wider_tensor():
    call = make_call([10], [8], MaskMode.CAUSAL)
    fused = torch.randn(8, 5 * 64)
    call = replace(call, q=fused[:, : 3 * 64].view(8, 3, 64))
    assert not call.q.is_contiguous()
    assert_close(call)


def decode(call: Call, request: int, row: int) -> torch.Tensor:
    """The same row as plain decoding would run it: its path in the cache, itself the only row."""
    first, _, prefix = call.bounds(request)
    path = call.path(request, row)
    places = [*range(prefix), *(prefix + seen for seen in path)]
    return replace(
        call,
        q=call.q[first + row : first + row + 1],
        req_to_token=call.slots(request)[places].int()[None].contiguous(),
        req_pool_indices=torch.tensor([0]),
        prefix_lens=torch.tensor([len(places) - 1]),
        row_starts=torch.tensor([0, 1]),
        parents=torch.tensor([-1]),
        mode=MaskMode.CAUSAL,
    ).run()[0]


def as_chunk(call: Call, request: int, row: int, prefix: int) -> torch.Tensor:
    """The same row as the last of a prefill chunk that starts at `prefix`."""
    first, _, cached = call.bounds(request)
    path = call.path(request, row)
    places = [*range(cached), *(cached + seen for seen in path)]
    count = len(places) - prefix
    q = torch.randn(count, *call.q.shape[1:]).to(call.q.dtype)
    q[-1] = call.q[first + row]
    return replace(
        call,
        q=q,
        req_to_token=call.slots(request)[places].int()[None].contiguous(),
        req_pool_indices=torch.tensor([0]),
        prefix_lens=torch.tensor([prefix]),
        row_starts=torch.tensor([0, count]),
        parents=torch.full((count,), -1),
        mode=MaskMode.CAUSAL,
    ).run()[-1]


@pytest.mark.parametrize(("dtype", "dot"), WAYS)
@pytest.mark.parametrize("heads", [(3, 1), (9, 3), (8, 2), (2, 2), (34, 2)])
def test_a_row_has_the_same_bits_in_every_call(dtype, dot, heads):
    """In a tree of a batch, alone as plain decoding, and in prefill chunks of any size."""
    prefixes, rows = [0, 119, 127, 128, 300], [7, 64, 20, 33, 16]
    batch = make_call(prefixes, rows, MaskMode.TREE, heads=heads, dtype=dtype, branching=2)
    batch = replace(batch, dot=dot)
    out = batch.run()
    for request in range(len(rows)):
        first, last, cached = batch.bounds(request)
        for row in range(0, last - first, 3):
            assert torch.equal(out[first + row], decode(batch, request, row))
        deepest = last - first - 1
        for prefix in {0, 1, cached // 2, cached}:
            chunk = as_chunk(batch, request, deepest, prefix)
            assert torch.equal(out[first + deepest], chunk)


def test_a_full_block_has_the_same_bits_alone_and_in_a_batch():
    batch = make_call([0, 125, 300], [16, 16, 16], MaskMode.FULL, heads=(9, 3))
    out = batch.run()
    for request in range(3):
        first, last, _ = batch.bounds(request)
        alone = replace(
            batch,
            q=batch.q[first:last],
            req_pool_indices=batch.req_pool_indices[request : request + 1],
            prefix_lens=batch.prefix_lens[request : request + 1],
            row_starts=torch.tensor([0, last - first]),
        )
        assert torch.equal(out[first:last], alone.run())


@pytest.mark.parametrize(("dtype", "dot"), WAYS)
def test_a_row_keeps_its_bits_beside_rows_without_numbers(dtype, dot):
    """Not a number in one branch of a tree must not reach another."""
    call = replace(make_call([20], [6], MaskMode.TREE, dtype=dtype), dot=dot)
    call = replace(call, parents=torch.tensor([-1, 0, 0, 1, 2, 4]))
    before = call.run()
    for pool in (call.k_pool, call.v_pool):
        pool[call.slots(0)[20 + 1]] = torch.nan
    after = call.run()
    sees = [row for row in range(6) if 1 in call.path(0, row)]
    assert sees == [1, 3]
    assert after[sees].isnan().all()
    others = [0, 2, 4, 5]
    assert torch.equal(after[others], before[others])


@pytest.mark.parametrize(("dtype", "dot"), WAYS)
@pytest.mark.parametrize("mode", list(MaskMode))
def test_threads_do_not_change_the_bits(mode, dtype, dot):
    call = replace(make_call([600, 5], [64, 30], mode, heads=(9, 3), dtype=dtype), dot=dot)
    single = make_call([600], [1], MaskMode.CAUSAL, heads=(9, 3), dtype=dtype)
    single = replace(single, dot=dot)
    results = []
    try:
        for count in (1, 2, 5):
            set_threads(count)
            results.append((call.run(), single.run()))
    finally:
        set_threads(None)
    for batch_out, single_out in results[1:]:
        assert torch.equal(batch_out, results[0][0])
        assert torch.equal(single_out, results[0][1])


def test_rows_of_no_request_are_left_alone():
    call = make_call([4], [6], MaskMode.CAUSAL)
    call = replace(call, row_starts=torch.tensor([0, 4]))
    assert call.run()[4:].isnan().all()
    assert replace(call, row_starts=torch.tensor([0, 0])).run().isnan().all()


GOOD = make_call([3], [4], MaskMode.TREE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k_pool": GOOD.k_pool[:, :, :32]}, "shapes of q"),
        ({"q": GOOD.q[:, :, :40], "k_pool": GOOD.k_pool[:, :, :40]}, "multiples of 16"),
        ({"k_pool": GOOD.k_pool.expand(-1, 2, -1)}, "shapes of q"),
        ({"q": GOOD.q.double()}, "types of q torch.float64"),
        ({"v_pool": GOOD.v_pool.half()}, "v_pool torch.float16"),
        ({"dot": Dot.TILES}, "dot TILES: on this CPU it must be one of FLOAT"),
        ({"q": GOOD.q.transpose(0, 1).contiguous().transpose(0, 1)}, "contiguous within a row"),
        ({"req_to_token": GOOD.req_to_token.long()}, "req_to_token is torch.int64"),
        ({"parents": GOOD.parents[:-1]}, r"parents must have shape \(4,\)"),
        ({"prefix_lens": torch.tensor([3, 3])}, r"prefix_lens has shape \(2,\)"),
        ({"row_starts": torch.tensor([0, 5])}, r"row_starts=\[0, 5\]"),
        ({"row_starts": torch.tensor([3, 1])}, r"row_starts=\[3, 1\]"),
        ({"prefix_lens": torch.tensor([-1])}, r"prefix_lens=\[-1\]"),
        ({"prefix_lens": torch.tensor([WIDTH])}, f"{WIDTH} columns"),
        ({"parents": torch.tensor([-1, 0, 2, 1])}, "parents be earlier rows"),
    ],
)
def test_bad_input_is_one_clear_error(change, message):
    with pytest.raises(ValueError, match=message):
        replace(GOOD, **change).run()
