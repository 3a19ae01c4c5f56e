"""Offline evaluation of a tiny head against replaying every budget by hand."""

import json

import pytest
import torch

from jetspec_sglang.cli import main
from jetspec_sglang.evaluation.acceptance import Rounds, continuations, path_ranks, replay
from jetspec_sglang.evaluation.costs import Costs
from jetspec_sglang.evaluation.offline import RULES, draft, evaluate
from jetspec_sglang.evaluation.plots import marginal_gain, plot_curves
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training.run import train
from jetspec_sglang.training.target import Recorder, load_target, matrices
from jetspec_sglang.tree import build_tree
from tests.unit.training.helpers import answers, tiny_settings

BUDGETS = (2, 5, 9, 16)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    settings = tiny_settings(folder, "run")
    return folder, settings, train(settings)


def test_every_rule_and_budget(trained):
    _, settings, folder = trained
    target = load_target(settings.target)
    head = HeadModel.from_folder(folder, *matrices(target))
    recorder = Recorder(target, head.config.target_layer_ids)
    data = answers(3, seed=9)
    result = evaluate({"h": head}, {"h": recorder}, data, (2,), budgets=BUDGETS, width=4)["h"]
    for rule in RULES:
        for budget in BUDGETS:
            wanted = []
            for i in range(len(data)):
                ids = torch.from_numpy(data.sequence(i))
                anchors = torch.arange(int(data.response_start[i]), len(ids) - 1)
                tokens, logprobs = draft(head, recorder(ids[None]).taps, ids, anchors, 4)
                tree = build_tree(tokens, logprobs, budget, rule)
                ranks = path_ranks(tree, continuations(ids, anchors, head.config.depths))
                accepted = (ranks < budget).sum(1).numpy()
                wanted.append(replay(accepted, head.config.depths, finished=False))
            assert result.rounds[rule, budget] == wanted
            assert result.tau(rule, budget) == sum(wanted, Rounds()).tau
    assert result.places[0] == sum(data.lengths - data.response_start - 1)


def test_the_command(trained, capsys):
    folder, settings, head = trained
    costs = folder / "costs.json"
    costs.write_text(json.dumps({"verify_seconds": {"1": 0.05, "8": 0.06}, "draft_seconds": 0.01}))
    arguments = ["eval", "--target", str(settings.target), "--heads", f"mine={head}"]
    arguments += ["--answers", f"quiz={settings.data[0]}", "--budgets", "2", "8"]
    arguments += ["--out", str(folder / "report"), "--costs", str(costs), "--limit", "2"]
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert table.count("| quiz | mine |") == 3
    assert "x)" in table
    results = json.loads((folder / "report" / "results.json").read_text())
    mine = results["quiz"]["mine"]
    assert mine["tau"]["best_first"].keys() == {"2", "8"}
    assert mine["tau_standard_error"]["best_first"]["8"] >= 0
    assert (folder / "report" / "tau.png").stat().st_size > 1000


def test_speed_ups_follow_the_costs(tmp_path):
    costs = Costs(verify_seconds={1: 0.05, 4: 0.06, 16: 0.09}, draft_seconds=0.01)
    assert costs.verify(10) == pytest.approx(0.075)
    assert costs.speedup(2.0, 16) == pytest.approx(1.0)
    assert costs.verify(32) != costs.verify(32)
    (tmp_path / "c.json").write_text('{"verify_seconds": {"4": 0.1}, "draft_seconds": 0}')
    with pytest.raises(ValueError, match="cost of 1 row"):
        Costs.load(tmp_path / "c.json")


def test_marginal_gain():
    assert marginal_gain({8: 2.0, 16: 2.4, 4: 1.6}) == {
        8: pytest.approx(0.1),
        16: pytest.approx(0.05),
    }


def test_plot(tmp_path):
    plot_curves({"quiz": {"a": {2: 1.5, 4: 1.8}}}, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
