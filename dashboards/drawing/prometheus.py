"""`Prometheus`: the few calls of its HTTP API that a dashboard needs.

Contract: every failure is a PrometheusError of one line that names the URL. Stale and missing
samples are left out, as Prometheus does. I/O: HTTP.
"""

from dataclasses import dataclass
from typing import Any

import httpx

TIMEOUT_S = 30.0


class PrometheusError(Exception):
    """There is no Prometheus, it is another program, or it refuses the query."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time range in Unix seconds, and the step of its range queries."""

    start: float
    end: float
    step: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Result:
    """One series of an answer: labels (with `__name__`), and (time, value) points."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """A Prometheus at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise PrometheusError(f"{url!r} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise PrometheusError(f"{url!r} is not a URL; it looks like http://127.0.0.1:9090")
        self._client = httpx.Client(base_url=parsed, timeout=TIMEOUT_S)
        # Messages and pictures name the URL; a password in it must not be read there.
        self.url = str(parsed.copy_with(userinfo=b"")).rstrip("/")

    def instant(self, expression: str, at: float) -> list[Result]:
        found = self._data("POST", "/api/v1/query", {"query": expression, "time": at})
        if found["resultType"] in ("scalar", "string"):
            return [Result({}, [_point(found["result"])])]
        return [Result(one["metric"], [_point(one["value"])]) for one in found["result"]]

    def range(self, expression: str, span: Span) -> list[Result]:
        # Steps on whole multiples, as Grafana asks for them: pictures of one range agree.
        start = span.start - span.start % span.step
        query = {"query": expression, "start": start, "end": span.end, "step": span.step}
        found = self._data("POST", "/api/v1/query_range", query)
        return [Result(one["metric"], [*map(_point, one["values"])]) for one in found["result"]]

    def label_values(self, label: str, selector: str | None, span: Span) -> list[str]:
        query: dict[str, Any] = {"start": span.start, "end": span.end}
        if selector:
            query["match[]"] = selector
        values: list[str] = self._data("GET", f"/api/v1/label/{label}/values", query)
        return values

    def rules(self) -> list[dict[str, Any]]:
        """Every recording and alerting rule with its health."""
        groups = self._data("GET", "/api/v1/rules", {})["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _data(self, method: str, path: str, query: dict[str, Any]) -> Any:
        place: dict[str, Any] = {"params": query} if method == "GET" else {"data": query}
        try:
            response = self._client.request(method, path, **place)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise PrometheusError(f"no Prometheus answers at {self.url} ({reason})") from None
        try:
            body = response.json()
            status = body["status"]
        except (ValueError, KeyError, TypeError):
            raise PrometheusError(
                f"{self.url}{path} answers {response.status_code} without JSON: "
                "this is not a Prometheus"
            ) from None
        if status != "success":
            words = " ".join(str(body.get("error")).split())
            raise PrometheusError(f"{self.url} refuses {query.get('query', path)!r}: {words}")
        return body["data"]


def _point(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
