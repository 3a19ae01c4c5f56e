"""The host platform answers whatever SGLang asks a platform."""

from __future__ import annotations

import inspect

import pytest
import sglang.srt.utils
import torch


@pytest.fixture
def platform():
    assert sglang.srt.utils  # it imports the platforms, and must come first
    from jetspec_sglang.host.platform import HostPlatform

    return HostPlatform()


def test_nothing_is_left_unimplemented(platform) -> None:
    """SGLang's scheduler dies of such an answer: `/start_profile` once stopped the server so."""
    methods = inspect.getmembers(platform, inspect.ismethod)
    missing = [name for name, each in methods if "NotImplementedError" in inspect.getsource(each)]
    assert missing == []


def test_profiler(platform) -> None:
    name = platform.get_torch_profiler_activity_str()
    kinds = torch.profiler.ProfilerActivity
    assert getattr(kinds, name) == platform.get_torch_profiler_activity()
