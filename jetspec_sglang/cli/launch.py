"""The SGLang command line that `jetspec serve` runs: the given flags, plus our defaults.

Contract: `sglang_arguments` is pure; a flag that is given is never changed. The sizes for the host
platform keep the embedded model within a small machine's memory.
"""

from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.client.errors import UsageError

MODEL = ("--model-path", "--model")
HEAD = "--speculative-draft-model-path"
MAX_BUDGET = "--speculative-num-draft-tokens"
ALGORITHM = "--speculative-algorithm"
DEFAULT_PORT = 30000

HOST_DEFAULTS = {
    "--page-size": "1",
    "--max-running-requests": "16",
}
HOST_SWITCHES = ("--sleep-on-idle",)
"""Without it SGLang's idle scheduler keeps one core busy."""

QUIET = {
    False: ("'python -m sglang.launch_server'",),
    True: ("'python -m sglang.launch_server'", "Only CUDA", "Triton is not supported on current"),
}
"""Beginnings of warnings that do not help the operator, without and with the host platform."""

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
EMBEDDED_TOKENS = "32768"
"""On the host, 16 requests of 2,048 tokens; SGLang would take all free memory for its KV pool."""


def wants_jetspec(flags: Flags, plain: bool) -> bool:
    """Whether this launch speculates with JETSPEC. Raises UsageError for a contradiction."""
    if plain:
        if speculative := flags.matching("--speculative-"):
            raise UsageError(f"--plain serves without speculation, but {speculative[0]} is given")
        return False
    return (flags.value(ALGORITHM) or "JETSPEC").upper() == "JETSPEC"


def interpreter_arguments(host: bool) -> list[str]:
    """The arguments before SGLang's own; its child processes inherit the `-W` filters."""
    filters = [part for text in QUIET[host] for part in ("-W", f"ignore:{text}:UserWarning")]
    return [*filters, "-m", "sglang.launch_server"]


def sglang_arguments(
    flags: Flags, *, model: str | None, head: str | None, jetspec: bool, host_dtype: str | None
) -> list[str]:
    """Arguments for `sglang.launch_server`, the user's own last: they win in any spelling.

    `model`: the target to serve when none is given, else None. `head`: likewise for the head.
    `jetspec`: ask for JETSPEC. `host_dtype`: the host platform's default dtype, None if another
    platform is in use.
    """
    defaults: dict[str, str] = {}
    switches = ["--enable-metrics"]
    if model is not None:
        defaults |= {"--model-path": model, "--served-model-name": EMBEDDED_NAME}
    if jetspec:
        defaults[ALGORITHM] = "JETSPEC"
        if head is not None:
            defaults[HEAD] = head
    if host_dtype is not None:
        defaults |= {"--dtype": host_dtype, **HOST_DEFAULTS}
        switches += HOST_SWITCHES
        if model is not None and not flags.given("--mem-fraction-static"):
            defaults["--max-total-tokens"] = EMBEDDED_TOKENS
    added = [
        part for name, value in defaults.items() if not flags.given(name) for part in (name, value)
    ]
    added += [name for name in switches if not flags.given(name)]
    return [*added, *flags.argv]
