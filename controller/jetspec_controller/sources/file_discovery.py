"""Targets from a file in Prometheus' file_sd format, JSON or YAML. Reads that file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import yaml

from jetspec_controller.core import Fault
from jetspec_controller.http_client import FetchError
from jetspec_controller.settings import FileDiscovery as FileDiscoverySettings
from jetspec_controller.settings import Settings
from jetspec_controller.sources.discovery import discovered
from jetspec_controller.targets import Origin, Target


class FileDiscovery:
    """Reads the file again when its modification time or size changes."""

    origin = Origin.FILE

    def __init__(self, file: FileDiscoverySettings, settings: Settings) -> None:
        self._file = file
        self._settings = settings
        self._stamp: tuple[int, int] | None = None
        self._targets: Sequence[Target] = ()

    async def targets(self, now: float) -> Sequence[Target]:
        try:
            status = self._file.path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                content = yaml.safe_load(self._file.path.read_text())
                self._targets = tuple(self._parse(content))
                self._stamp = stamp
        except OSError as error:
            raise FetchError(Fault.DOWN, f"{self._file.path}: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise FetchError(Fault.PARSE, f"{self._file.path}: {error}") from error
        return self._targets

    def _parse(self, content: Any) -> Iterator[Target]:
        try:
            for group in content or ():
                labels = group.get("labels") or {}
                for address in group["targets"]:
                    target = discovered(address, self._file.scheme, self.origin, self._settings)
                    yield replace(
                        target,
                        id=str(labels.get("id", target.id)),
                        instance=str(labels.get("instance", target.instance)),
                    )
        except (TypeError, KeyError, AttributeError) as error:
            raise FetchError(
                Fault.PARSE, f"{self._file.path}: not a list of {{targets, labels}}: {error!r}"
            ) from error
