"""`python dashboards/preview.py --prometheus URL`: dashboards from a live Prometheus as PNG.

Contract: one picture per dashboard, named by its uid, in the folder. Exit status 0 when every
dashboard was drawn, whatever its panels hold (one without data says so in the picture), 1 when
Prometheus or a variable failed, 2 for a wrong command line; each with one line on stderr. It draws
with matplotlib what Grafana would draw from the same JSON; it is not Grafana. I/O: HTTP to
Prometheus, writes the folder.
"""

import argparse
import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dashboards.drawing import page
from dashboards.drawing.dashboard import Dashboard, load
from dashboards.drawing.prometheus import Prometheus, PrometheusError, Span
from dashboards.drawing.transformations import UnknownTransformationError
from dashboards.drawing.variables import SCRAPE_S, VariableError, resolve

DASHBOARDS = Path(__file__).resolve().parent / "grafana"
DEFAULT_URL = "http://127.0.0.1:30910"
POINTS = 300
"""Most points of a range query. Steps are rounded up to a round time."""
STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400)
_RELATIVE = re.compile(r"now(?:-(\d+)([smhdw]))?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class UsageError(Exception):
    """The command line is wrong; exit status 2."""


def moment(text: str, now: float) -> float:
    """Unix seconds of `now`, `now-15m`, a date and time, or Unix seconds."""
    if match := _RELATIVE.fullmatch(text):
        return now - int(match[1] or 0) * _SECONDS[match[2] or "s"]
    try:
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; it looks like now-15m, 2026-01-31T12:00 or 1767225600"
        ) from None


def span(start: float, end: float) -> Span:
    if end - start < STEPS[0]:
        raise UsageError("--from must lie before --to")
    wanted = max((end - start) / POINTS, SCRAPE_S)
    return Span(start, end, float(next((step for step in STEPS if step >= wanted), STEPS[-1])))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="preview.py", description="Draw the dashboards from a live Prometheus as PNG."
    )
    parser.add_argument(
        "--prometheus", default=DEFAULT_URL, metavar="URL", help="(%(default)s, as in make stack)"
    )
    parser.add_argument(
        "--dashboard", action="append", metavar="UID", help="only this one; may be repeated"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder (%(default)s)")
    parser.add_argument(
        "--from", dest="start", metavar="TIME", help="now-15m, a date, Unix seconds (dashboard's)"
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="likewise (dashboard's)")
    parser.add_argument(
        "--var", action="append", default=[], metavar="NAME=VALUE", help="a variable's value"
    )
    parser.add_argument(
        "--rows", type=int, metavar="N", help="only the first N rows of the dashboard's grid"
    )
    parser.add_argument(
        "--width", type=int, default=1400, help="of the picture in pixels (%(default)s)"
    )
    return parser.parse_args(argv)


def chosen_dashboards(uids: Sequence[str] | None) -> list[Dashboard]:
    every = [load(file) for file in sorted(DASHBOARDS.glob("*.json"))]
    known = [dashboard.uid for dashboard in every]
    if unknown := set(uids or ()) - {*known}:
        raise UsageError(
            f"no dashboard {', '.join(sorted(unknown))}; there are: {', '.join(known)}"
        )
    return [dashboard for dashboard in every if not uids or dashboard.uid in uids]


def chosen_values(given: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--var {one!r}: it looks like NAME=VALUE")
        values.setdefault(name, []).append(value)
    return values


def require_known(values: Iterable[str], dashboards: Sequence[Dashboard]) -> None:
    """A variable needs to exist in one dashboard only: `--var budget=8` is for the one that has it."""
    known = {one["name"]: None for dashboard in dashboards for one in dashboard.variables}
    if unknown := sorted(set(values) - known.keys()):
        raise UsageError(f"no variable {', '.join(unknown)}; there are: {', '.join(known)}")


def draw(dashboard: Dashboard, args: argparse.Namespace, prometheus: Prometheus) -> str:
    """Draw one dashboard; a line that says what the picture shows."""
    now = time.time()
    default = dashboard.json.get("time") or {"from": "now-1h", "to": "now"}
    shown = span(moment(args.start or default["from"], now), moment(args.end or default["to"], now))
    names = {one["name"] for one in dashboard.variables}
    chosen = {name: v for name, v in chosen_values(args.var).items() if name in names}
    values = resolve(dashboard.variables, prometheus, shown, chosen)
    file = args.out / f"{dashboard.uid}.png"
    if args.rows:
        dashboard = dashboard.cut(args.rows)
    drawn = page.draw(dashboard, page.Queries(prometheus, shown, values), file, args.width)
    empty = f", without data: {'; '.join(drawn.empty)}" if drawn.empty else ""
    return f"{file}: {drawn.panels} panels{empty}"


def main(argv: Sequence[str]) -> int:
    args = parse(argv)
    status = 0
    try:
        if not 400 <= args.width <= 4000:
            raise UsageError(f"--width is {args.width}: must be 400 to 4000")
        if args.rows is not None and args.rows < 1:
            raise UsageError(f"--rows is {args.rows}: must be 1 or more")
        dashboards = chosen_dashboards(args.dashboard)
        require_known(chosen_values(args.var), dashboards)
        prometheus = Prometheus(args.prometheus)
        args.out.mkdir(parents=True, exist_ok=True)
        for dashboard in dashboards:
            try:
                print(draw(dashboard, args, prometheus))
            except (VariableError, UnknownTransformationError) as error:
                print(f"preview: {dashboard.uid}: {error}", file=sys.stderr)
                status = 1
    except UsageError as error:
        print(f"preview: {error}", file=sys.stderr)
        return 2
    except PrometheusError as error:
        print(f"preview: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"preview: cannot write in {args.out}: {error.strerror}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
