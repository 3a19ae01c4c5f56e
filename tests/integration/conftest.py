"""Servers of the integration tests: started at first use, shared by the whole run.

`pytest -n 2 --dist loadgroup` runs two files at a time, unit tests too. Every test that uses a server of the whole
run (`WHOLE_RUN`) goes to one worker, so that each of these servers starts once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jetspec_sglang import embedded
from jetspec_sglang.training.target import load_target
from tests.conftest import RECORDINGS
from tests.integration.cases import Named, greedy, send
from tests.support import oracle
from tests.support.cut import LAYERS, cut
from tests.support.heads import head_config, write_head
from tests.support.prompts import SYSTEM, chat_ids, texts
from tests.support.reference import Reference
from tests.support.served import Served, serving
from tests.support.server import Server

REPOSITORY = Path(__file__).parents[2]
DTYPE = os.environ.get("JETSPEC_TEST_DTYPE", "float32")
SERVER = (
    *("--dtype", DTYPE, "--page-size", "1"),
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

WHOLE_RUN = {"jetspec": "servers", "reference": "servers", "served": "served"}
"""Session fixtures that hold a server, and the group of their tests. A test's own `xdist_group`
mark comes first."""

LEARNED = (16, 64)
"""Texts that the oracle knows before any test, and tokens of each one's continuation."""

StartServer = Callable[..., Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))
        if not item.get_closest_marker("xdist_group"):
            fixtures = getattr(item, "fixturenames", ())
            groups = [WHOLE_RUN[name] for name in fixtures if name in WHOLE_RUN]
            group = groups[0] if groups else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """What takes longest comes first: the servers of the whole run, then slow files."""
    [group] = item.get_closest_marker("xdist_group").args  # type: ignore[union-attr]
    servers = [*dict.fromkeys(WHOLE_RUN.values())]
    if group in servers:
        return servers.index(group)
    return len(servers) + (item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded target, or what `JETSPEC_TEST_LAYERS` leaves of it."""
    whole = embedded.target_path()
    layers = os.environ.get(LAYERS)
    return cut(whole, tmp_path_factory.mktemp("model"), int(layers)) if layers else whole


@pytest.fixture(scope="session")
def start_server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> StartServer:
    """Start a server on the model: (name, flags, settings, environment) -> Server."""

    def start(
        name: str,
        *flags: str,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        variables = {**HOST, **(environment or {})}
        variables["JETSPEC_SETTINGS"] = json.dumps(settings or {})
        log = tmp_path_factory.mktemp("log") / f"{name}.log"
        arguments = ["--model-path", str(model), *SERVER, *flags]
        return Server.start(arguments, log, variables)

    return start


@pytest.fixture(scope="session")
def reference(start_server: StartServer, model: Path) -> Iterator[Reference]:
    """Plain decoding's answers."""
    folder = Path(os.environ[RECORDINGS])
    start = partial(start_server, "plain", "--max-total-tokens", "16384")
    recorded = Reference(start, folder, model.name)
    yield recorded
    recorded.close()


@pytest.fixture(scope="session")
def target(model: Path) -> Any:
    """The model in transformers, beside the servers: the independent implementation."""
    return load_target(model)


@pytest.fixture(scope="session")
def heads(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random heads: `causal` with a draft vocabulary, `bidirectional` over the whole one."""
    folder = tmp_path_factory.mktemp("heads")
    deep = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    causal = head_config(causal=True, layers=2, target_layers=deep)
    bidirectional = head_config(causal=False, layers=1, target_layers=deep)
    return {
        "causal": write_head(folder / "causal", causal, seed=1, draft_vocab=4000),
        "bidirectional": write_head(folder / "bidirectional", bidirectional, seed=2),
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


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`jetspec serve`: the whole embedded model with the shipped head, and its controller."""
    with serving(tmp_path_factory.mktemp("serve")) as running_command:
        yield running_command
        running_command.assert_sigterm_ends_all_of_it()


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
