"""Host slots and moves against plain loops."""

from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.device.host import HostOps


class Pool:
    """Records a move and applies it to one buffer, reading before writing."""

    def __init__(self, slots):
        self.buffer = torch.arange(slots)
        self.moved = 0

    def move_kv_cache(self, target, source):
        self.moved += target.numel()
        self.buffer[target] = self.buffer[source].clone()


def batch_of(lens, width, slots=200):
    rows = torch.randperm(slots, generator=torch.Generator().manual_seed(1)).to(torch.int32)
    pool = Pool(slots)
    return SimpleNamespace(
        seq_lens=torch.tensor(lens),
        req_pool_indices=torch.arange(len(lens)),
        req_to_token_pool=SimpleNamespace(req_to_token=rows.view(4, -1)),
        token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: pool),
    ), pool


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 16))
def test_a_window_lies_behind_the_committed_length(lens, width):
    batch, _ = batch_of(lens, width)
    window = HostOps().window(batch, width)
    for i, length in enumerate(lens):
        expected = batch.req_to_token_pool.req_to_token[i, length : length + width]
        assert window[i].tolist() == expected.tolist()


@given(st.data())
def test_compaction_puts_the_path_in_front(data):
    width, depth = 12, 5
    bs = data.draw(st.integers(1, 4))
    paths = []
    for _ in range(bs):
        steps = data.draw(
            st.lists(st.integers(1, width - 1), unique=True, max_size=depth).map(sorted)
        )
        paths.append([0, *steps] + [-1] * (depth - len(steps)))
    batch, pool = batch_of([3] * bs, width)
    window = HostOps().window(batch, width)
    HostOps().compact(batch, window, SimpleNamespace(path=torch.tensor(paths)))
    for i, path in enumerate(paths):
        for place, node in enumerate(path):
            if node >= 0:
                assert pool.buffer[window[i, place]] == window[i, node]


def test_a_path_already_in_front_moves_nothing():
    batch, pool = batch_of([0, 5], 8)
    path = torch.tensor([[0, 1, 2, -1], [0, -1, -1, -1]])
    HostOps().compact(batch, HostOps().window(batch, 8), SimpleNamespace(path=path))
    assert pool.moved == 0
