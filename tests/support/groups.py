"""`pytest --dist loadgroup`: tests with one `xdist_group` mark run in one worker.

xdist 3.8 tells its main process the group by a suffix that it gives the node id, which pytest 9.2
ignores. Here each worker writes the groups of what it collected into the run's own cache folder,
and the main process's scheduler reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from jetspec_sglang.cache import cache_dir


class ByGroup(LoadScopeScheduling):
    """Hands out whole groups, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    @cached_property
    def groups(self) -> dict[str, str]:
        return json.loads((cache_dir() / "groups.json").read_text())

    def _split_scope(self, nodeid: str) -> str:
        return self.groups[nodeid]


def write_groups(items: Iterable[pytest.Item]) -> None:
    """A worker's part, before it reports what it collected. A test without a mark is its own."""
    marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in items)
    groups = {nodeid: mark.args[0] if mark else nodeid for nodeid, mark in marks}
    own = cache_dir() / f"groups.{os.getpid()}.part"
    own.write_text(json.dumps(groups))
    own.replace(cache_dir() / "groups.json")
