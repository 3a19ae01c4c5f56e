"""`HostPlatform`: SGLang's device interface for a CPU with AVX2.

Contract: created once per process by SGLang. `init_backend` builds and loads the native
library (file I/O on first use); `post_load_model` packs the model's weights in place.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import KVPoolKind, PlatformCapabilities, SRTPlatform

from jetspec_sglang.host.names import HOST_ATTENTION
from jetspec_sglang.host.quota import THREADS, usable_cpus

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)


class HostPlatform(CpuDeviceMixin, SRTPlatform):
    """SGLang on the CPU: packed linears, native attention, no graphs, no Triton."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_device(self, device_id: int = 0) -> str:
        # The base class of this release declares a string and SGLang splits it.
        return "cpu"

    def is_pin_memory_available(self, device: object = None) -> bool:
        return False

    def get_torch_profiler_activity_str(self) -> str:
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        return torch.profiler.ProfilerActivity.CPU

    def apply_server_args_defaults(self, server_args: ServerArgs) -> None:
        # The first place that SGLang asks: later it fails on such a target without saying why.
        from jetspec_sglang import bridge

        bridge.refuse_layers_with_state(bridge.target_config(server_args))
        bridge.refuse_tokenizer_workers(server_args)
        # SGLang has filled in the AMX backend by now; this platform has only its own.
        server_args.attention_backend = HOST_ATTENTION

    def get_default_attention_backend(self) -> str:
        return HOST_ATTENTION

    def get_default_speculative_draft_attention_backend(self, algorithm: str) -> str:
        return HOST_ATTENTION

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        # In-tree algorithms verify greedily on CPU whatever the temperature, or need Triton.
        return algorithm == "JETSPEC"

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        return algorithm == "JETSPEC" and backend == HOST_ATTENTION

    def get_compile_backend(self, mode: str | None = None) -> str:
        return "eager"

    def get_kv_pool_cls(self, *, kind: KVPoolKind) -> type | None:
        if kind != "mha":  # SGLang asks for every kind; the attention backend refuses MLA
            return None
        from jetspec_sglang.host.pool import HostKVPool

        return HostKVPool

    def init_backend(self) -> None:
        from jetspec_sglang.host import kernels
        from jetspec_sglang.host.fused import register_fused_layers

        threads = torch.get_num_threads()
        if not os.environ.get(THREADS):
            threads = min(threads, usable_cpus())
            torch.set_num_threads(threads)
        kernels.set_threads(threads)
        register_fused_layers(self.get_dispatch_key_name())

    def post_load_model(self, model: torch.nn.Module) -> None:
        from jetspec_sglang.host import decoder, kernels
        from jetspec_sglang.host.linear import pack_linears

        packed = pack_linears(model)
        dtypes = {weight.dtype for weight in model.parameters()}
        if dtypes <= {*kernels.DTYPES}:
            # No product is left to torch, whose idle threads would spin on the pool's cores.
            torch.set_num_threads(1)
        decoder.install(model)
        ways = [
            f"{dtype}: {kernels.dots(dtype)[0].name.lower()}"
            if dtype in kernels.DTYPES
            else f"{dtype}: oneDNN"
            for dtype in sorted(dtypes, key=str)
        ]
        logger.info(
            "packed %d linear layers of %s (%s)", packed, type(model).__name__, ", ".join(ways)
        )
