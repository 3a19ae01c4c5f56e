"""Whatever is sent to the API, it never answers with a 5xx, and answers as its schema says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jetspec_controller.api.app import create_app
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.rig import rig

pytestmark = pytest.mark.integration

TOKEN = {"Authorization": "Bearer 0123456789abcdef"}
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


class Served(threading.Thread):
    """The API of a controller on a fake server, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.ready, self.done = threading.Event(), threading.Event()
        self.url = ""

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        tokens = self.folder / "tokens"
        tokens.write_text("ops 0123456789abcdef\n")
        wanted = {"api": {"insecure": False, "token_file": tokens}}
        async with rig(self.folder, settings=wanted) as made:
            await made.ticks(4)
            app = create_app(made.service)
            server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
            server.install_signal_handlers = lambda: None
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.05)
            host, port = server.servers[0].sockets[0].getsockname()[:2]
            self.url = f"http://{host}:{port}"
            self.target = made.name
            self.ready.set()
            await asyncio.to_thread(self.done.wait)
            server.should_exit = True
            await serving


@pytest.fixture(scope="module")
def api(tmp_path_factory) -> Iterator[Served]:
    thread = Served(tmp_path_factory.mktemp("api"))
    thread.start()
    assert thread.ready.wait(60)
    yield thread
    thread.done.set()
    thread.join(30)


@pytest.mark.parametrize("examples", [20, pytest.param(80, marks=pytest.mark.full)])
def test_no_request_breaks_the_api(examples: int, api: Served) -> None:
    """Valid and invalid requests to every operation, with a token; half of those for a target go
    to one that is there.
    """
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:
        modes = list(GenerationMode)
        cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))

        @settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        )
        @given(case=cases, there=st.booleans())
        def never_a_5xx(case: schemathesis.Case, there: bool) -> None:
            if there and "target_id" in case.path_parameters:
                case.path_parameters["target_id"] = api.target
            case.call_and_validate(headers=TOKEN, checks=CHECKS)

        never_a_5xx()
