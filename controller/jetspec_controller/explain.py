"""`jetspec-controller explain`: a running controller's last decision in words. Does network I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from jetspec_controller.http_client import FetchError, HttpClient
from jetspec_controller.writes import SPAN_S

TIMEOUT_S = 5.0


async def explain(url: str, target: str | None) -> str:
    """Text for one server, or for all. Raises ValueError if the controller cannot be asked."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"--url is {url!r}; it must begin with http:// or https://")
    async with HttpClient() as client:

        async def ask(path: str) -> Any:
            try:
                return (await client.get(url.rstrip("/") + path, timeout_s=TIMEOUT_S)).json()
            except FetchError as error:
                raise ValueError(f"{url}{path}: {error.detail}") from error

        try:
            names = [target] if target else [t["id"] for t in (await ask("/v1/targets"))["targets"]]
            details = [await ask(f"/v1/targets/{quote(name, safe='')}") for name in names]
            return "\n\n".join("\n".join(describe(detail)) for detail in details)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{url} does not answer like a controller: {error!r}") from error


def describe(detail: Mapping[str, Any]) -> Iterator[str]:
    """Lines about one `TargetDetail`."""
    summary, decision = detail["summary"], detail["decision"]
    yield f"{summary['id']} at {summary['url']}: {summary['mode'] or 'not decided yet'}"
    if decision is None:
        return
    why = decision["explanation"]
    running = summary["budget"] if summary["budget"] is not None else "unknown"
    yield f"  runs budget {running}; decided {decision['budget']}: {decision['reason']}"
    if why["batch_now"] is not None:
        rate = why["arrival_rate"]
        per_second = "requests/s not known" if rate is None else f"{rate:.2f} requests/s"
        yield f"  batch {why['batch_now']:.1f}, {per_second}, expected batch {why['batch_expected']:.1f}"
    if why["kv_ceiling"] is not None:
        yield f"  the KV cache has room for budget {why['kv_ceiling']} at the expected batch"
    if why["overwrites"]:
        yield f"  changed by somebody else {why['overwrites']} times within {SPAN_S / 60:.0f} minutes"
    for fault in why["faults"]:
        yield f"  unusable: {fault['signal']}: {fault['fault']} {fault['detail']}".rstrip()
    if why["clamps"]:
        yield f"  limited by: {', '.join(why['clamps'])}"
    if why["candidates"]:
        yield "  budget     tau  round ms  token ms"
    for candidate in why["candidates"]:
        mark = "*" if candidate["budget"] == decision["budget"] else " "
        guess = "  extrapolated" if candidate["extrapolated"] else ""
        yield (
            f" {mark}{candidate['budget']:7d}{candidate['tau']:8.2f}"
            f"{1e3 * candidate['round_s']:10.2f}{1e3 * candidate['token_s']:10.3f}{guess}"
        )
    last = detail["last_apply"]
    if last is not None:
        yield f"  last control call: {last['outcome']} {last['detail']}".rstrip()
