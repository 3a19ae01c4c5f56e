"""`Reference`: what plain decoding answers, recorded once per folder of recordings.

An answer is kept by the content of its request, under a folder named by everything that could
change it: target, SGLang, torch, this project's host platform, CPU. The plain server starts only
when an answer is missing. Every greedy answer also becomes the oracle's continuation, and `teach`
makes the oracle's table of likely successors: it is the same whatever else was recorded.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jetspec_sglang
from tests.support.oracle import digest
from tests.support.server import Server

FOLLOWERS = 8
CONCURRENCY = 16


class Reference:
    """Recorded answers; `start` makes the plain server when one is missing."""

    def __init__(self, start: Callable[[], Server], recordings: Path, model: str) -> None:
        """`model` is the name of its folder."""
        self._start = start
        self._server: Server | None = None
        self.folder = recordings / f"plain-{fingerprint(model)}"
        self.oracle = self.folder / "oracle"
        self.oracle.mkdir(parents=True, exist_ok=True)

    def answers(
        self, requests: Iterable[Mapping[str, Any]], concurrency: int = CONCURRENCY
    ) -> list[dict[str, Any]]:
        """Plain decoding's `/generate` answers, recorded now or earlier."""
        requests = list(requests)
        missing = [request for request in requests if not self._path(request).exists()]
        if missing:
            server = self.server()

            def record(request: Mapping[str, Any]) -> None:
                self._keep(request, server.generate(request))

            with ThreadPoolExecutor(concurrency) as pool:
                list(pool.map(record, missing))
        return [json.loads(self._path(request).read_text()) for request in requests]

    def teach(self, requests: Iterable[Mapping[str, Any]]) -> None:
        """Record greedy requests; their answers' pairs of tokens are the oracle's bigrams."""
        counts: dict[int, Counter[int]] = defaultdict(Counter)
        for answer in self.answers(requests):
            for token, follower in itertools.pairwise(answer["output_ids"]):
                counts[token][follower] += 1
        table = {t: [f for f, _ in c.most_common(FOLLOWERS)] for t, c in counts.items()}
        _write(self.oracle / "bigrams.json", table)

    def server(self) -> Server:
        """The plain server, started at first use."""
        if self._server is None:
            self._server = self._start()
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _path(self, request: Mapping[str, Any]) -> Path:
        content = json.dumps(request, sort_keys=True)
        return self.folder / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.json"

    def _keep(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        params = request.get("sampling_params", {})
        plain = set(params) <= {"temperature", "max_new_tokens", "ignore_eos"}
        if plain and params.get("temperature") == 0 and "input_ids" in request:
            path = self.oracle / f"{digest(request['input_ids'])}.json"
            known = json.loads(path.read_text()) if path.exists() else []
            if len(answer["output_ids"]) > len(known):
                _write(path, answer["output_ids"])
        _write(self._path(request), answer)


def fingerprint(model: str) -> str:
    """Names everything that plain decoding's bits depend on."""
    package = Path(jetspec_sglang.__file__).parent
    parts = [
        model,
        version("sglang"),
        version("torch"),
        platform.processor() or platform.machine(),
        _cpu_model(),
    ]
    code = hashlib.sha256()
    for path in sorted([*package.glob("host/*.py"), *package.glob("host/kernels/*")]):
        if path.is_file():
            code.update(path.read_bytes())
    return hashlib.sha256("|".join([*parts, code.hexdigest()]).encode()).hexdigest()[:12]


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")


def _write(path: Path, value: Any) -> None:
    """Whole or not at all, also when two runs share the folder."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as scratch:
        json.dump(value, scratch)
    Path(scratch.name).replace(path)
