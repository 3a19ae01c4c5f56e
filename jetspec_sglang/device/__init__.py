"""The differences between rounds on the host and on CUDA: one class per device, chosen once.

Contract: `base.DeviceOps` lists the operations. Nothing else in a round depends on the device.
"""

from __future__ import annotations

import torch

from jetspec_sglang.device.base import DeviceOps


def device_ops(device: str | torch.device) -> DeviceOps:
    """The operations for SGLang's device."""
    if torch.device(device).type == "cpu":
        from jetspec_sglang.device.host import HostOps

        return HostOps()
    if torch.device(device).type == "cuda":
        from jetspec_sglang.device.cuda import CudaOps

        return CudaOps()
    raise ValueError(f"JETSPEC runs on cuda and on the host platform, not on {device!r}")


__all__ = ["DeviceOps", "device_ops"]
