"""The tensor versions wait for no value: they run on tensors that have none."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jetspec_sglang.tree import RULES, Tree
from jetspec_sglang.tree.tensors import build_tensors
from jetspec_sglang.verify.accept_tensors import accept_tensors


class StaysOn(TorchDispatchMode):
    """Refuses any operation that makes a tensor off the device: a copy there would block."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                assert leaf.device.type == self.device, f"{func} gives a tensor on {leaf.device}"
        return out


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("depth", "width"), [(15, 8), (0, 8), (15, 0)])
def test_no_operation_depends_on_a_value_or_leaves_the_device(rule, depth, width):
    with FakeTensorMode(), StaysOn("cuda"):
        tokens = torch.empty(4, depth, width, dtype=torch.int64, device="cuda")
        tree = build_tensors(tokens, torch.empty(tokens.shape, device="cuda"), 64, rule)
        assert isinstance(tree, Tree)
        assert tree.tokens.shape == (4, 64)
        path, lens, committed, bonus = accept_tensors(tree, tree.tokens, depth)
        assert path.shape == committed.shape == (4, depth + 1)
        assert lens.shape == bonus.shape == (4,)


def test_the_check_sees_a_sync_and_a_copy():
    with FakeTensorMode(), StaysOn("cuda"):
        tensor = torch.empty(4, device="cuda")
        with pytest.raises(Exception, match="_local_scalar_dense"):
            tensor.sum().item()
        with pytest.raises(AssertionError, match="on cpu"):
            tensor + torch.tensor([1.0])
