"""Loss values and gradients against float64 autograd of the plain definitions."""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspec_sglang.training.loss_names import Loss
from jetspec_sglang.training.losses import depth_weights, distillation_loss


def plain(states, lm_head, teacher, labels, weights, parts, temperature):
    student = states @ lm_head.T
    log_p = (student / temperature).log_softmax(-1)
    log_q = (teacher @ lm_head.T / temperature).log_softmax(-1)
    scale = temperature**2
    rows = torch.zeros(len(states), dtype=torch.float64)
    for name, weight in parts.items():
        if name == "forward_kl":
            rows = rows + weight * scale * (log_q.exp() * (log_q - log_p)).sum(-1)
        elif name == "reverse_kl":
            rows = rows + weight * scale * (log_p.exp() * (log_p - log_q)).sum(-1)
        else:
            flat = torch.nn.functional.cross_entropy(
                student, labels, reduction="none", ignore_index=-1
            )
            rows = rows + weight * flat
    return (rows * weights).sum()


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    chunk=st.integers(1, 10),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    parts=st.dictionaries(st.sampled_from(get_args(Loss)), st.floats(0.1, 2.0), min_size=1),
    seed=st.integers(0, 1000),
)
def test_value_and_gradient_equal_autograd(rows, chunk, temperature, parts, seed):
    torch.manual_seed(seed)
    double = torch.float64
    states = torch.randn(rows, 5, dtype=double, requires_grad=True)
    lm_head, teacher = torch.randn(11, 5, dtype=double), torch.randn(rows, 5, dtype=double)
    labels, weights = torch.randint(-1, 11, (rows,)), torch.rand(rows, dtype=double)
    got, best = distillation_loss(
        states, lm_head, teacher, labels, weights, parts, temperature, chunk
    )
    (gradient,) = torch.autograd.grad(got * 3, states)
    want = plain(states, lm_head, teacher, labels, weights, parts, temperature)
    (wanted_gradient,) = torch.autograd.grad(want * 3, states)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(gradient, wanted_gradient)
    assert torch.equal(best, (states @ lm_head.T).argmax(-1))


def test_a_student_that_equals_its_teacher_has_no_kl():
    states, lm_head = torch.randn(4, 5), torch.randn(7, 5)
    for name in ("forward_kl", "reverse_kl"):
        loss, _ = distillation_loss(
            states, lm_head, states, torch.zeros(4, dtype=torch.long), torch.ones(4), {name: 1.0}
        )
        assert abs(float(loss)) < 1e-5


def test_depth_weights():
    assert depth_weights(3, 0).tolist() == [1, 1, 1]
    torch.testing.assert_close(depth_weights(3, 2.0), torch.tensor([1, 0.60653, 0.36788]))


def test_kl_without_a_teacher_is_refused():
    with pytest.raises(ValueError, match="teacher"):
        distillation_loss(
            torch.ones(1, 2),
            torch.ones(3, 2),
            None,
            torch.zeros(1, dtype=torch.long),
            torch.ones(1),
            {"forward_kl": 1.0},
        )
