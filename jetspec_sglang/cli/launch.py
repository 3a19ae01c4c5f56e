"""The SGLang command line that `jetspec serve` runs: what was asked for, plus our defaults.

Contract: `sglang_arguments` is pure; a flag that is given is never changed. The sizes for the host
platform keep the embedded model within a small machine's memory.
"""

from jetspec_sglang.cli.errors import UsageError
from jetspec_sglang.cli.flags import Flags

MODEL = ("--model-path", "--model")
HEAD = "--speculative-draft-model-path"
ALGORITHM = "--speculative-algorithm"
DEFAULT_PORT = 30000

HOST_DEFAULTS = {
    "--dtype": "float32",
    "--page-size": "1",
    "--max-running-requests": "16",
}
HOST_SWITCHES = ("--sleep-on-idle",)
"""Without it SGLang's idle scheduler keeps one core busy."""

EMBEDDED_DEFAULTS = {"--max-total-tokens": "32768"}
"""16 requests of the embedded model's 2,048 tokens each; SGLang would take all free memory."""


def wants_jetspec(flags: Flags, plain: bool) -> bool:
    """Whether this launch speculates with JETSPEC. Raises UsageError for a contradiction."""
    if plain:
        if speculative := flags.matching("--speculative-"):
            raise UsageError(f"--plain serves without speculation, but {speculative[0]} is given")
        return False
    return (flags.value(ALGORITHM) or "JETSPEC").upper() == "JETSPEC"


def sglang_arguments(
    flags: Flags, *, model: str | None, head: str | None, jetspec: bool, host: bool
) -> list[str]:
    """Arguments for `sglang.launch_server`, the user's own first.

    `model`: the target to serve when none is given, else None. `head`: likewise for the head.
    `jetspec`: ask for JETSPEC. `host`: the host platform is in use.
    """
    defaults: dict[str, str] = {}
    switches = ["--enable-metrics"]
    if model is not None:
        defaults["--model-path"] = model
    if jetspec:
        defaults[ALGORITHM] = "JETSPEC"
        if head is not None:
            defaults[HEAD] = head
    if host:
        defaults |= HOST_DEFAULTS
        switches += HOST_SWITCHES
        if model is not None and not flags.given("--mem-fraction-static"):
            defaults |= EMBEDDED_DEFAULTS
    added = [
        part for name, value in defaults.items() if not flags.given(name) for part in (name, value)
    ]
    added += [name for name in switches if not flags.given(name)]
    return [*flags.argv, *added]
