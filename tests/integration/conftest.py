"""Servers of the integration tests: started at first use, shared by the whole run.

`pytest -n 2 --dist loadgroup` runs two files at a time. Every test that uses a server of the whole
run (`WHOLE_RUN`) goes to one worker, so that each of these servers starts once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetspec_sglang import embedded
from jetspec_sglang.training.target import load_target
from tests.conftest import RECORDINGS
from tests.integration.cases import Named, greedy, send
from tests.support import oracle
from tests.support.heads import head_config, write_head
from tests.support.prompts import SYSTEM, chat_ids, texts
from tests.support.reference import Reference
from tests.support.server import Server

REPOSITORY = Path(__file__).parents[2]
SERVER = (
    *("--dtype", "float32", "--page-size", "1"),
    *("--sleep-on-idle", "--skip-server-warmup", "--enable-metrics"),
    *("--max-running-requests", "16", "--random-seed", "7"),
)
POOL = 1800
"""Slots: enough for a few requests at any budget, too few for sixteen at B=64."""
CHUNK = 64
CONTEXT = 512
HOST = {"JETSPEC_PLATFORM": "host", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}

SECONDS = 1800
"""A test may have to start two servers on a busy machine first."""

WHOLE_RUN = {"jetspec", "reference"}
"""Session fixtures that hold a server. A test's own `xdist_group` mark comes first."""

LEARNED = (16, 64)
"""Texts that the oracle knows before any test, and tokens of each one's continuation."""

StartServer = Callable[..., Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))
        if not item.get_closest_marker("xdist_group"):
            shared = WHOLE_RUN.intersection(getattr(item, "fixturenames", ()))
            group = "servers" if shared else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> StartServer:
    """Start a server on the embedded target: (name, flags, settings, environment) -> Server."""

    def start(
        name: str,
        *flags: str,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        variables = {**HOST, **(environment or {})}
        variables["JETSPEC_SETTINGS"] = json.dumps(settings or {})
        log = tmp_path_factory.mktemp("log") / f"{name}.log"
        arguments = ["--model-path", str(embedded.target_path()), *SERVER, *flags]
        return Server.start(arguments, log, variables)

    return start


@pytest.fixture(scope="session")
def reference(start_server: StartServer) -> Iterator[Reference]:
    """Plain decoding's answers."""
    folder = Path(os.environ[RECORDINGS])
    recorded = Reference(lambda: start_server("plain", "--max-total-tokens", "16384"), folder)
    yield recorded
    recorded.close()


@pytest.fixture(scope="session")
def target() -> Any:
    """The embedded target in transformers, beside the servers: the independent implementation."""
    return load_target(embedded.target_path())


@pytest.fixture(scope="session")
def heads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random heads: `causal` with a draft vocabulary, `bidirectional` over the whole one."""
    folder = tmp_path_factory.mktemp("heads")
    return {
        "causal": write_head(
            folder / "causal", head_config(causal=True, layers=2), seed=1, draft_vocab=4000
        ),
        "bidirectional": write_head(
            folder / "bidirectional", head_config(causal=False, layers=1), seed=2
        ),
    }


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared server appends every round's drafts."""
    return tmp_path_factory.mktemp("trace") / "drafts.jsonl"


@pytest.fixture(scope="session")
def oracle_plugin(tmp_path_factory: pytest.TempPathFactory, reference: Reference) -> dict[str, str]:
    """Environment of a server that drafts whatever is recorded."""
    return oracle.install(tmp_path_factory.mktemp("plugin"), reference.oracle, REPOSITORY)


def teach(reference: Reference) -> None:
    """The first texts, so that drafts do not depend on which test comes first."""
    count, tokens = LEARNED
    reference.teach([greedy(chat_ids(t), tokens, ignore_eos=True) for t in texts(count)])


@pytest.fixture(scope="session")
def with_oracle(oracle_plugin: dict[str, str], reference: Reference) -> dict[str, str]:
    """Environment of a server that drafts recorded continuations, the first texts' among them."""
    teach(reference)
    return oracle_plugin


@pytest.fixture(scope="session")
def jetspec(
    start_server: StartServer,
    heads: dict[str, Path],
    trace: Path,
    oracle_plugin: dict[str, str],
    reference: Reference,
) -> Iterator[Server]:
    """The shared JETSPEC server: causal head, oracle, small KV pool, small prefill chunks.

    Plain decoding records what the oracle learns first while this server starts.
    """
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(
            start_server,
            "jetspec",
            *jetspec_flags(heads["causal"]),
            *("--max-total-tokens", str(POOL), "--chunked-prefill-size", str(CHUNK)),
            *("--context-length", str(CONTEXT)),
            settings={"budget": 16, "draft_trace": str(trace), "calibration_seconds": 1.0},
            environment=oracle_plugin,
        )
        try:
            teach(reference)
            yield starting.result()
        finally:
            starting.result().stop()


@pytest.fixture
def budget(jetspec: Server) -> Iterator[Callable[[int], None]]:
    """Set the shared server's budget; back to 16 afterwards."""
    yield jetspec.set_budget
    jetspec.set_budget(16)


@pytest.fixture(scope="session")
def crowd(jetspec: Server, reference: Reference) -> list[Named]:
    """Sixteen long prompts at B=64, once: they do not fit the pool, so some are retracted."""
    requests = [greedy(chat_ids(text, SYSTEM), 24, ignore_eos=True) for text in texts(16)]
    reference.answers(requests)
    jetspec.flush()
    jetspec.set_budget(64)
    try:
        return send(jetspec, requests, 16)
    finally:
        jetspec.set_budget(16)


def jetspec_flags(head: Path) -> tuple[str, ...]:
    return ("--speculative-algorithm", "JETSPEC", "--speculative-draft-model-path", str(head))


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server of one test, stopped at its end."""
    try:
        yield server
    finally:
        server.stop()
