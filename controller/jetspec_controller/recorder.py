"""Observations as JSON lines, for the replay of decisions. Appends to a file and reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from jetspec_controller.core import PolicyConfig, TargetObservation

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The input of `decide` for one server at one tick, without the carried state."""

    now: float
    policy: PolicyConfig
    observation: TargetObservation


_ADAPTER = TypeAdapter(Recorded)


class Recorder:
    """Writes one line per decision. If the disk fails, the recording ends but control continues."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be opened."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def write(self, now: float, policy: PolicyConfig, observation: TargetObservation) -> None:
        try:
            if not self._file.closed:
                # Through json, which keeps NaN apart from null: a replay must see the same fault.
                recorded = _ADAPTER.dump_python(Recorded(now, policy, observation), mode="json")
                self._file.write(json.dumps(recorded).encode() + b"\n")
        except OSError as error:
            logger.error("recording ends: %s", error)
            self.close()

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            logger.error("the recording's end was lost: %s", error)


def read(path: Path) -> Iterator[Recorded]:
    """The recorded ticks in order. Raises ValueError that names the line, or OSError."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield _ADAPTER.validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"])) or "line"
                raise ValueError(f"{path}:{number}: {place}: {first['msg']}") from error
