"""`Flags`: the SGLang flags of a command line, with their values.

Contract: looks only at spellings. SGLang's own parser decides what is valid. A flag counts as given
on the command line (`--flag value`, `--flag=value`) or in the YAML file of `--config`. I/O: reads
that file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from jetspec_sglang.client.errors import UsageError


class Flags:
    """A view of an SGLang command line. `argv` stays unchanged."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self._values: dict[str, str] = {}
        file = _find("--config", self.argv)
        if file is not None:
            self._values.update(_read_config(file))
        for i, argument in enumerate(self.argv):
            if argument.startswith("--"):
                name, equals, value = argument.partition("=")
                follower = self.argv[i + 1] if i + 1 < len(self.argv) else ""
                self._values[name] = value if equals else follower

    def given(self, *names: str) -> bool:
        """Whether any of these spellings is given."""
        return any(name in self._values for name in names)

    def value(self, *names: str) -> str | None:
        """The value of the first of these spellings that is given."""
        return next((self._values[name] for name in names if name in self._values), None)

    def integer(self, name: str, default: int) -> int:
        """A flag that must be a whole number. Raises UsageError when it is not."""
        value = self.value(name)
        if value is None:
            return default
        try:
            return int(value)
        except ValueError:
            raise UsageError(f"{name} is {value!r}: must be a whole number") from None

    def matching(self, prefix: str) -> list[str]:
        """Every given flag that starts with `prefix`."""
        return sorted(name for name in self._values if name.startswith(prefix))


def _find(name: str, argv: list[str]) -> str | None:
    if name not in argv:
        return None
    position = argv.index(name) + 1
    if position == len(argv):
        raise UsageError(f"{name} needs a file")
    return argv[position]


def _read_config(file: str) -> dict[str, str]:
    try:
        content: Any = yaml.safe_load(Path(file).read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"--config {file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UsageError(f"--config {file}: must hold `flag: value` lines")
    return {f"--{str(key).replace('_', '-')}": str(value) for key, value in content.items()}
