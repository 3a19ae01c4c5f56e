"""Every kernel's every argument: any strides give what contiguous tensors give, or are refused.

A wrapper that takes the address of a converted copy frees the copy before the kernel reads it.
So addresses are made in one place, by the call itself, which holds what it is given.
"""

import ast
import ctypes
import gc
import weakref
from pathlib import Path

import pytest
import torch

import jetspec_sglang
from jetspec_sglang.host import kernels
from jetspec_sglang.host.kernels import MaskMode, library, pointwise

PACKAGE = Path(jetspec_sglang.__file__).parent
GENERATOR = torch.Generator().manual_seed(3)


def normal(*shape):
    return torch.randn(shape, generator=GENERATOR)


def indices(*values):
    return torch.tensor(values)


def pack(weight):
    return kernels.pack(weight).words


def linear(x, weight, bias):
    return kernels.linear(x, kernels.pack(weight), bias)


def attention(q, k_pool, v_pool, req_to_token, req_pool_indices, prefix_lens, row_starts, parents):
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    kernels.attention(
        *(q, k_pool, v_pool, out, req_to_token, req_pool_indices, prefix_lens, row_starts),
        *(parents, MaskMode.TREE, 0.25),
    )
    return out


def rotate(x, positions, cos_sin):
    x = x.clone() if x.is_contiguous() else strided(x)
    pointwise.rotate(x, positions, cos_sin, 32)
    return x


TREE = library.build_tree(
    torch.arange(24).view(2, 3, 4), normal(2, 3, 4).log_softmax(-1).sort(-1, True)[0], 8, 0
)
CALLS = {
    pack: {"weight": normal(24, 10)},
    linear: {"x": normal(5, 10), "weight": normal(24, 10), "bias": normal(24)},
    attention: {
        "q": normal(6, 4, 16),
        "k_pool": normal(20, 2, 16),
        "v_pool": normal(20, 2, 16),
        "req_to_token": torch.randperm(20, generator=GENERATOR).int().view(2, 10),
        "req_pool_indices": indices(1, 0),
        "prefix_lens": indices(3, 5),
        "row_starts": indices(0, 3, 6),
        "parents": indices(-1, 0, 1, -1, 0, 0),
    },
    pointwise.rms_norm: {"x": normal(3, 32), "residual": normal(3, 32), "weight": normal(32)},
    pointwise.silu_and_mul: {"x": normal(3, 64)},
    rotate: {
        "x": normal(3, 64),
        "positions": indices(4, 0, 7),
        "cos_sin": normal(9, 32),
    },
    library.build_tree: {
        "topk_tokens": torch.arange(24).view(2, 3, 4),
        "topk_logprobs": normal(2, 3, 4).log_softmax(-1).sort(-1, True)[0],
    },
    library.accept: {
        "tokens": TREE[0],
        "parents": TREE[1],
        "sizes": TREE[4],
        "target_tokens": TREE[0].roll(-1, 1),
    },
    library.child_links: {"parents": TREE[1], "sizes": TREE[4]},
}
EXTRA = {
    pointwise.rms_norm: {"eps": 1e-5},
    library.build_tree: {"budget": 8, "rule": 0},
    library.accept: {"depth_limit": 3},
}
IN_PLACE = {attention: ("q", "k_pool", "v_pool", "req_to_token"), rotate: ("x",)}
"""Read or written where they lie, so refused."""
ARGUMENTS = [(call, name) for call, given in CALLS.items() for name in given]


def strided(tensor):
    """The same values, with others between them in every dimension."""
    spread = torch.full([2 * size for size in tensor.shape], 77).to(tensor.dtype)
    view = spread[tuple(slice(None, None, 2) for _ in tensor.shape)]
    return view.copy_(tensor)


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else [t for t in result if t is not None]


@pytest.mark.parametrize(
    ("call", "name"), ARGUMENTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_strides_change_no_result(call, name):
    given = CALLS[call] | EXTRA.get(call, {})
    expected = flat(call(**given))
    changed = given | {name: strided(given[name])}
    if name in IN_PLACE.get(call, ()):
        with pytest.raises(ValueError, match="contiguous"):
            call(**changed)
        return
    found = flat(call(**changed))
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_addresses_are_made_by_the_call_alone():
    """An address taken earlier does not keep its tensor alive."""
    places = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "data_ptr":
                places.append(path.relative_to(PACKAGE).as_posix())
    assert places == ["host/kernels/library.py"]


def test_the_call_holds_a_temporary_until_it_returns():
    alive = []
    watched = []

    def kernel(address):
        gc.collect()
        alive.append(watched[0]() is not None)

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel)
    function.argtypes = [library.Pointer]

    def temporary():
        tensor = torch.ones(4)
        watched.append(weakref.ref(tensor))
        return tensor

    function(temporary())
    gc.collect()
    assert alive == [True]
    assert watched[0]() is None


@pytest.mark.parametrize("value", [3, [1.0]])
def test_only_tensors_become_pointers(value):
    with pytest.raises(TypeError, match="must be a tensor"):
        library.Pointer.from_param(value)


def test_a_tensor_elsewhere_is_refused():
    with pytest.raises(TypeError, match="must be on the CPU"):
        library.Pointer.from_param(torch.empty(1, device="meta"))
