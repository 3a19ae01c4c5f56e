"""A Prometheus in a thread that answers the preview's calls from a table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest


class FakePrometheus:
    """`answer(expression)` gives [(labels, value)], the same at each time; `labels` by label."""

    def __init__(self) -> None:
        self.labels: dict[str, list[str]] = {}
        self.answer = lambda expression: [({"job": "sglang", "le": "2"}, 3.0)]
        self.asked: list[str] = []
        self.refuse: str | None = None
        self.body: bytes | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.respond(parse_qs(urlsplit(self.path).query))

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self.respond(parse_qs(self.rfile.read(length).decode()))

            def respond(self, query: dict[str, list[str]]) -> None:
                body = outer.body or json.dumps(outer.respond(urlsplit(self.path).path, query))
                self.send_response(200 if outer.body is None else 404)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def respond(self, path: str, query: dict[str, list[str]]) -> dict:
        if self.refuse:
            return {"status": "error", "error": self.refuse}
        if path.startswith("/api/v1/label/"):
            label = path.split("/")[4]
            return {"status": "success", "data": self.labels.get(label, [])}
        [expression] = query["query"]
        self.asked.append(expression)
        found = self.answer(expression)
        if path.endswith("query"):
            at = float(query["time"][0])
            result = [{"metric": labels, "value": [at, str(v)]} for labels, v in found]
            return {"status": "success", "data": {"resultType": "vector", "result": result}}
        start, end, step = (float(query[name][0]) for name in ("start", "end", "step"))
        times = [start + step * i for i in range(int((end - start) / step) + 1)]
        result = [{"metric": m, "values": [[t, str(v)] for t in times]} for m, v in found]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    yield fake
    fake.stop()
