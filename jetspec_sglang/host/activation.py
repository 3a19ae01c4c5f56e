"""The host platform: stock SGLang on any AVX2 CPU.

`activate` is SGLang's platform entry point. Its only I/O is to ask torch for devices. It returns
the platform's name only if the platform should be used: `JETSPEC_PLATFORM=host` asks for it, `auto`
(the default) uses it on a machine without an accelerator, `off` never does.
"""

from __future__ import annotations

import os

CHOICES = ("auto", "host", "off")
HOST_PLATFORM = "jetspec_sglang.host.platform:HostPlatform"


def platform_choice() -> str:
    """The value of `JETSPEC_PLATFORM`; ValueError when it is not one of `CHOICES`."""
    choice = os.environ.get("JETSPEC_PLATFORM", "auto").strip().lower() or "auto"
    if choice not in CHOICES:
        raise ValueError(f"JETSPEC_PLATFORM is {choice!r}; allowed: {', '.join(CHOICES)}")
    return choice


def has_accelerator() -> bool:
    """Whether torch sees a device that stock SGLang would serve on."""
    import torch

    if torch.accelerator.is_available():
        return True
    # SGLang's own CPU engine (AMX) is an explicit choice of the operator.
    return os.environ.get("SGLANG_USE_CPU_ENGINE", "0") == "1"


def activate() -> str | None:
    """SGLang's platform entry point: the class to use, or None to do nothing."""
    choice = platform_choice()
    if choice == "host" or (choice == "auto" and not has_accelerator()):
        return HOST_PLATFORM
    return None
