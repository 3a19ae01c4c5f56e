"""Whole runs on a tiny target: resume, export, several processes' arithmetic, overfitting."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from jetspec_sglang.head.checkpoint import expected_tensors
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training import run as runs
from jetspec_sglang.training.batches import PAD, Sampler, rows
from jetspec_sglang.training.features import LiveFeatures
from jetspec_sglang.training.objective import Objective
from jetspec_sglang.training.responses import load, save
from jetspec_sglang.training.run import train
from jetspec_sglang.training.start import feature_scale, head_config, start_from_target
from jetspec_sglang.training.target import Recorder, load_target, matrices
from tests.unit.training.helpers import answers, tiny_settings


def losses(settings):
    lines = (settings.run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def parts(settings, dtype=torch.float64):
    """Objective, sampler and features as `train` builds them, in float64."""
    target = load_target(settings.target, dtype)
    config = head_config(
        target.config, num_layers=2, block_size=4, mask_token_id=5, target_layer_ids=(0, 2, 4)
    )
    head = HeadModel(config, *matrices(target)).to(dtype)
    recorder = Recorder(target, config.target_layer_ids)
    data = load(settings.data[0])
    taps = recorder(torch.from_numpy(data.sequence(0))[None]).taps[0]
    scale = feature_scale(taps).to(dtype)
    start_from_target(head, target, taps, scale)
    objective = Objective(head, scale, {"forward_kl": 1.0}, temperature=1.0, gamma=3.0, chunk=5)
    sampler = Sampler(data, settings.sequences, settings.anchors, config.depths, settings.seed)
    return target, objective, sampler, LiveFeatures(recorder)


@pytest.mark.parametrize("cached", [False, True])
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path, monkeypatch, cached):
    extra = {"feature_cache": tmp_path / "features"} if cached else {}
    whole = tiny_settings(tmp_path, "whole", **extra)
    train(whole)

    class KilledError(Exception):
        pass

    def kill(*args, **kwargs):
        raise KilledError

    broken = tiny_settings(tmp_path, "broken", **extra)
    with monkeypatch.context() as patched:
        patched.setattr(runs, "export_head", kill)
        with pytest.raises(KilledError):
            train(broken)
    assert len(losses(broken)) == 3
    left_over = broken.run / "checkpoint.old"  # as a kill in the middle of a swap leaves it
    left_over.mkdir()
    (left_over / "progress.json").write_text("{}")
    train(broken)
    assert losses(broken) == losses(whole)
    assert losses(whole)[-1] < losses(whole)[0]


def test_tensorboard_shows_what_the_lines_say(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = tiny_settings(tmp_path, "run", steps=4, tensorboard=True)
    train(settings)
    events = EventAccumulator(str(settings.run / "tensorboard")).Reload()
    shown = events.Scalars("loss")
    assert [event.step for event in shown] == [1, 2, 3, 4]
    assert [event.value for event in shown] == pytest.approx(losses(settings), rel=1e-6)
    assert len(events.Scalars("accuracy/depth_1")) == 4


def test_other_settings_do_not_continue_a_run(tmp_path):
    train(tiny_settings(tmp_path, "run", steps=3))
    with pytest.raises(ValueError, match=r"learning_rate was 0\.003, is 0\.1"):
        train(tiny_settings(tmp_path, "run", steps=3, learning_rate=0.1))


def test_export_and_load_give_identical_logits(tmp_path):
    settings = tiny_settings(tmp_path, "run", draft_vocab_size=20)
    folder = train(settings)
    config = HeadConfig.from_folder(folder)
    assert config.causal
    target = load_target(settings.target)
    loaded = HeadModel.from_folder(folder, *matrices(target))
    again = HeadModel.from_folder(folder, *matrices(target), dtype=torch.float32)
    assert set(loaded.state_dict()) == set(expected_tensors(config))
    recorder = Recorder(target, config.target_layer_ids)
    ids = torch.from_numpy(load(settings.data[0]).sequence(0))[None]
    place = torch.tensor([[6, 9]])
    block = loaded.mask_block(ids.gather(1, place))
    got = loaded(recorder(ids).taps, place, block)
    assert got.shape == (1, 2, 3, 20)
    assert torch.equal(got, again(recorder(ids).taps, place, block))


def test_the_trained_state_and_its_export_agree(tmp_path):
    """Dividing features by the scale is the same as folding the scale into the projection."""
    settings = tiny_settings(tmp_path, "run")
    target, objective, sampler, source = parts(settings)
    head = objective.head
    indices, batch = sampler.batch(0)
    features = source.features(indices, batch.tokens)
    block = head.mask_block(batch.anchor_tokens)
    trained = head(features.taps / objective.scale, batch.anchors, block)
    folder = tmp_path / "exported"
    runs.export_head(
        folder, head.config, head.state_dict(), feature_scale=objective.scale, dtype="float32"
    )
    loaded = HeadModel.from_folder(folder, *matrices(target), dtype=torch.float64)
    torch.testing.assert_close(
        loaded(features.taps, batch.anchors, block), trained, rtol=1e-4, atol=1e-4
    )


def test_gradients_only_in_the_head(tmp_path):
    target, objective, sampler, source = parts(tiny_settings(tmp_path, "run"))
    indices, batch = sampler.batch(0)
    features = source.features(indices, batch.tokens)
    objective(batch, features, objective.weight_sum(batch)).loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in objective.head.parameters())
    assert all(p.grad is None for p in target.parameters())


def test_a_block_with_real_tokens_sees_those_and_no_later_ones(tmp_path):
    """The loss of given blocks is that of the head asked with the same tokens, masks behind."""
    settings = tiny_settings(tmp_path, "run")
    _, objective, sampler, source = parts(settings)
    head = objective.head
    indices, batch = dataclasses.replace(sampler, real_share=1.0).batch(0)
    assert bool((batch.given > 0).any())
    features = source.features(indices, batch.tokens)
    asked = []
    hidden = head.hidden

    def spy(taps, anchors, block):
        asked.append(block)
        return hidden(taps, anchors, block)

    head.hidden = spy
    score = objective(batch, features, objective.weight_sum(batch))
    [block] = asked
    steps = torch.arange(batch.labels.shape[-1])
    real = (steps < batch.given[..., None]) & (batch.labels != PAD)
    assert torch.equal(block[..., 1:][real], batch.labels[real])
    assert bool((block[..., 1:][~real] == head.config.mask_token_id).all())
    assert float(score.rows.sum()) == float(batch.scored[batch.given == 0].sum())
    # Tokens that are not given yet change labels, but no state: the loss of depth 1 stays.
    first = batch.scored & (batch.distances == 0)
    states = hidden(features.taps / objective.scale, batch.anchors, block)[first]
    changed = torch.where(batch.scored, (batch.labels + 1) % 40, batch.labels)
    later = dataclasses.replace(batch, labels=changed)
    objective(later, features, objective.weight_sum(later))
    assert torch.equal(asked[-1], block)
    again = hidden(features.taps / objective.scale, later.anchors, asked[-1])[first]
    assert torch.equal(states, again)


def test_micro_batches_add_up_to_the_global_batch(tmp_path):
    """What several processes rely on: parts of a batch under the global divisor sum to it."""
    _, objective, sampler, source = parts(tiny_settings(tmp_path, "run"))
    indices, batch = sampler.batch(0)
    divisor = objective.weight_sum(batch)

    def gradient(pieces):
        objective.zero_grad()
        for piece in pieces:
            part = rows(batch, piece)
            features = source.features(indices[piece], part.tokens)
            objective(part, features, divisor).loss.backward()
        return [p.grad.clone() for p in objective.head.parameters()]

    whole = gradient([slice(0, 4)])
    for a, b in zip(whole, gradient([slice(0, 1), slice(1, 4)]), strict=True):
        torch.testing.assert_close(a, b)


def test_training_refuses_held_out_prompts(tmp_path):
    settings = tiny_settings(tmp_path, "run")
    save(answers().take([4]), tmp_path / "held.npz")
    with pytest.raises(ValueError, match="1 of its 1 prompts are in the training data"):
        train(settings.model_copy(update={"held_out": (tmp_path / "held.npz",)}))


def test_uneven_shares_are_refused(tmp_path):
    with pytest.raises(ValueError, match="multiple of micro_sequences x processes = 3 x 1"):
        train(tiny_settings(tmp_path, "run", micro_sequences=3))


@pytest.mark.slow
def test_a_small_set_is_learned_by_heart(tmp_path):
    save(answers(4), tmp_path / "answers.npz")
    settings = tiny_settings(
        tmp_path, "run", steps=150, sequences=4, micro_sequences=4, anchors=16, loss="sft",
        learning_rate=1e-2, warmup_steps=10, checkpoint_every=150, log_every=10,
    )  # fmt: skip
    train(settings)
    lines = (settings.run / "metrics.jsonl").read_text().splitlines()
    assert np.mean([json.loads(line)["accuracy"][0] for line in lines[-3:]]) > 0.95
