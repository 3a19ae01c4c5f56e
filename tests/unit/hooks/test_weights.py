"""Weights of a running server are refused where copies of them exist, and SGLang's elsewhere."""

from types import SimpleNamespace

import pytest
from sglang.srt.managers import io_struct

from jetspec_sglang.hooks import weights
from jetspec_sglang.hooks.weights import MESSAGE, change, release_or_resume

REQUESTS = (
    io_struct.UpdateWeightFromDiskReqInput(model_path="/nope"),
    io_struct.UpdateWeightsFromTensorReqInput(serialized_named_tensors=[]),
    io_struct.BeginWeightUpdateReqInput(),
    io_struct.CheckWeightsReqInput(action="reset_tensors"),
)


def updater():
    return SimpleNamespace(draft_worker=None)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_on_the_host_an_update_is_refused(request_, monkeypatch):
    monkeypatch.setenv("JETSPEC_PLATFORM", "host")
    answer = change(lambda *given: pytest.fail("was changed"), updater(), request_)
    assert (answer.success, answer.message) == (False, MESSAGE)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_elsewhere_it_is_sglangs(request_, monkeypatch):
    monkeypatch.setenv("JETSPEC_PLATFORM", "off")
    assert change(lambda *given: given[-1], updater(), request_) is request_


@pytest.mark.parametrize("action", ["checksum", "snapshot", "compare"])
def test_weights_can_be_read(action, monkeypatch):
    monkeypatch.setenv("JETSPEC_PLATFORM", "host")
    request = io_struct.CheckWeightsReqInput(action=action)
    assert change(lambda *given: given[-1], updater(), request) is request


def test_under_jetspec_it_is_refused_on_any_platform(monkeypatch):
    monkeypatch.setattr(weights, "_on_host", lambda: False)
    manager = SimpleNamespace(server_args=SimpleNamespace(speculative_algorithm="JETSPEC"))
    with pytest.raises(ValueError, match="start another server"):
        release_or_resume(lambda *given: None, manager, None)
    manager.server_args.speculative_algorithm = None
    assert release_or_resume(lambda *given: "released", manager, None) == "released"
