"""Drafts that know their path: the tree they give, what a second pass sees, calibration."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.cli import main
from jetspec_sglang.evaluation import conditioning
from jetspec_sglang.evaluation.acceptance import END, Rounds
from jetspec_sglang.evaluation.acceptance import path_ranks as ranks_of_tree
from jetspec_sglang.evaluation.conditioning import ONE_PASS, compare, drafts, path_ranks
from jetspec_sglang.evaluation.offline import draft, evaluate
from jetspec_sglang.evaluation.platt import CalibratedDraft, PlattScaling, reliability
from jetspec_sglang.evaluation.second_pass import ConditionedDraft, rows_of, second_pass
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training.run import train
from jetspec_sglang.training.target import Recorder, load_target, matrices
from jetspec_sglang.tree import build_tree
from tests.unit.head.helpers import tiny_config, tiny_head
from tests.unit.training.helpers import answers, tiny_settings

DEPTHS = 3
MASK = 5


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conditioning")
    settings = tiny_settings(folder, "run")
    head_folder = train(settings)
    target = load_target(settings.target)
    head = HeadModel.from_folder(head_folder, *matrices(target))
    return settings, head_folder, head, Recorder(target, head.config.target_layer_ids)


def one_pass(tokens, logprobs):
    return ConditionedDraft((tokens.tolist(), logprobs.tolist()), ([], []), {}, nodes=1, masks=0)


@given(st.data())
def test_the_tree_is_the_builders(data):
    """A draft that knows no more than depths grows the builder's own tree, ties included."""
    depths, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    # Quarters add up exactly in the builder's float32 and here.
    quarter = st.integers(0, 12).map(lambda n: -n / 4)
    values = data.draw(st.lists(quarter, min_size=depths * width, max_size=depths * width))
    logprobs = torch.tensor(values).view(1, depths, width).sort(dim=-1, descending=True).values
    tokens = torch.arange(100, 100 + depths * width).view(1, depths, width)
    siblings = [data.draw(st.integers(0, width - 1)) for _ in range(depths)]
    follows = tokens[0, torch.arange(depths), siblings]
    wanted = ranks_of_tree(build_tree(tokens, logprobs, 16, "best_first"), follows[None])[0]
    assert path_ranks(one_pass(tokens[0], logprobs[0]), follows.tolist(), 16) == wanted.tolist()


def test_one_pass_agrees_with_eval(trained):
    _, _, head, recorder = trained
    data = answers(4, seed=3)
    results = compare(head, list(drafts(head, recorder, data, (2,))), budgets=(4, 8), sizes=())
    replayed = evaluate({"h": head}, {"h": recorder}, data, (2,), budgets=(4, 8), width=8)["h"]
    for budget in (4, 8):
        assert results[ONE_PASS, budget] == replayed.rounds["best_first", budget]


def tree_of(head, taps, ids, anchors, nodes):
    return build_tree(*draft(head, taps, ids, anchors, 4), nodes, "best_first")


def test_second_pass_is_the_heads_own_forward_on_every_branch(trained):
    """Behind a node lie the rows of a block that holds anchor, path and masks, and nothing else."""
    _, _, head, recorder = trained
    ids = torch.from_numpy(answers(1, seed=8).sequence(0))
    anchors = torch.arange(5, 9)
    taps = recorder(ids[None]).taps
    tree = tree_of(head, taps, ids, anchors, 6)
    tokens, logprobs = second_pass(head, taps, anchors, tree, ids[anchors], 2, 3)
    assert tokens.shape == logprobs.shape == (4, 5, 2, 3)
    for a, anchor in enumerate(anchors):
        for node in range(1, 6):
            path, at = [], node
            while at > 0:
                path.insert(0, int(tree.tokens[a, at]))
                at = int(tree.parents[a, at])
            block = torch.tensor([[[int(ids[anchor]), *path, MASK, MASK]]])
            alone = head(taps, anchor[None, None], block)[0, 0, -2:]
            assert torch.allclose(logprobs[a, node - 1], alone.topk(3).values, atol=1e-5)


def test_rows_see_nothing_of_other_branches():
    tokens = torch.arange(10, 16).view(1, 3, 2)
    tree = build_tree(tokens, torch.log(torch.tensor([[[0.6, 0.4]] * 3])), 6, "best_first")
    block, offsets, see = rows_of(tree, torch.tensor([7]), 2, MASK)
    assert block[0, 0] == 7
    assert (block[0, 6:] == MASK).all()
    for row in range(6):
        path = {row}
        while min(path) > 0:
            path.add(int(tree.parents[0, min(path)]))
        assert set(see[0, row].nonzero().flatten().tolist()) == path
        if row:
            masks = 6 + 2 * (row - 1)
            assert set(see[0, masks].nonzero().flatten().tolist()) == path | {masks}
            assert set(see[0, masks + 1].nonzero().flatten().tolist()) == path | {masks, masks + 1}
            depth = int(tree.depths[0, row])
            assert offsets[0, masks : masks + 2].tolist() == [depth + 1, depth + 2]


def test_a_second_pass_speaks_for_its_own_node_alone():
    """After token 10 the second pass knows better; after token 11 the first pass still holds."""
    first = ([[10, 11], [20, 21]], [[-0.1, -2.5], [-0.2, -2.0]])
    second = ([[[30, 31], [40, 41]]], [[[-0.01, -5.0], [-0.02, -5.0]]])
    draft_ = ConditionedDraft(first, second, {(0, 10): 1}, nodes=2, masks=2)
    assert path_ranks(draft_, [10, 30, 40], 4) == [1, 2, 3]
    assert path_ranks(draft_, [11, 20], 16)[1] < 16
    assert path_ranks(draft_, [10, 20], 16) == [1, 16]


def test_heads_that_predict_the_next_row_are_refused():
    head = tiny_head(tiny_config(draft_shift=True), dtype=torch.float32)
    tree = build_tree(torch.ones(1, 4, 2).long(), torch.zeros(1, 4, 2), 4, "best_first")
    with pytest.raises(ValueError, match="draft_shift = true"):
        second_pass(head, torch.zeros(1, 3, 48), torch.tensor([2]), tree, torch.tensor([1]), 1, 2)


def test_calibration_finds_what_was_distorted():
    generator = torch.Generator().manual_seed(0)
    said = torch.rand(20_000, DEPTHS, 1, generator=generator) * 0.6 + 0.2
    odds = torch.log(said / (1 - said))
    truly = torch.sigmoid(0.5 * odds - 0.7)
    hits = torch.rand(said.shape, generator=generator) < truly
    tokens = torch.full(said.shape, 3)
    follows = torch.where(hits[..., 0], 3, 4)
    fitted = PlattScaling.fit(tokens, said.log(), follows, states=1)
    assert fitted.slope[:, 0].tolist() == pytest.approx([0.5] * DEPTHS, abs=0.1)
    shifts = fitted.shift[:, 0] + fitted.by_rank[:, 0]
    assert shifts.tolist() == pytest.approx([-0.7] * DEPTHS, abs=0.1)
    assert torch.allclose(fitted(said.log(), 0).exp(), truly.double(), atol=0.03)


def test_off_argmax_tokens_choose_the_scores():
    tokens = torch.tensor([[1, 2], [3, 4]])
    scores = [
        torch.tensor([[-0.5, -1.0], [-0.1, -3.0]]),
        torch.tensor([[-0.5, -1.0], [-3.0, -0.1]]),
    ]
    calibrated = CalibratedDraft(tokens, scores)
    assert calibrated.after(calibrated.child(calibrated.root(), 0)) == (
        [3, 4],
        pytest.approx([-0.1, -3.0]),
    )
    assert calibrated.after(calibrated.child(calibrated.root(), 1)) == (
        [4, 3],
        pytest.approx([-0.1, -3.0]),
    )
    assert calibrated.after((2, 0)) is None


def test_reliability_counts_only_places_whose_path_is_known():
    tokens = torch.tensor([[[1, 2], [3, 4]]] * 3)
    logprobs = torch.log(torch.tensor([[[0.5, 0.25], [0.8, 0.1]]] * 3))
    follows = torch.tensor([[1, 3], [2, 9], [9, END]])
    (first, second), (_, off), _ = reliability(tokens, logprobs, follows)
    assert first == (pytest.approx(1 / 3), pytest.approx(0.5), 3)
    assert second == (1.0, pytest.approx(0.8), 1)
    assert off == (0.0, pytest.approx(0.8), 1)


def test_the_command(trained, capsys, tmp_path):
    settings, folder, _, _ = trained
    document = tmp_path / "b.md"
    document.write_text("<!-- bench:conditioning -->\n<!-- /bench:conditioning -->\n")
    command = ["bench", "conditioning", "--target", str(settings.target), "--head", str(folder)]
    command += ["--answers", f"quiz={settings.data[0]}", "--limit", "4", "--write", str(document)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    for variant in (ONE_PASS, *conditioning.CALIBRATED, "second pass, N=16, M=1"):
        assert f"| quiz | {variant} |" in shown
    assert shown.strip() in document.read_text()
    assert main([*command[:-4], "--limit", "1"]) == 2
    assert "--limit 1: must be 2 or more" in capsys.readouterr().err


def test_differences_are_paired():
    plain = [Rounds(10, 5), Rounds(30, 10)]
    found = {(ONE_PASS, 8): plain, ("other", 8): [Rounds(11, 5), Rounds(33, 10)]}
    rows = conditioning.table({"s": found}, {}, (8,))
    assert rows[1][:3] == ["s", ONE_PASS, "2.67"]
    assert rows[2][2].startswith("2.93 (+10.0 ±")
