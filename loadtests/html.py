"""A report as one HTML page that needs no other file. Pure, except that it reads images."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}"
    ".warn{background:#fde8e8;padding:.4em .8em;margin:.3em 0}pre{background:#f6f6f6;padding:1em}"
)


def page(summary: Mapping[str, Any], images: Sequence[Path]) -> str:
    """The page of one run."""
    from loadtests.figures import notes, number

    rows = [
        [name, *(number(summary[f"{key}_{name}_ms"]) for key in _COLUMNS)]
        for name in ("ttft", "tpot", "itl", "e2e_latency")
    ]
    parts = [
        f"<h1>{html.escape(str(summary['label']))}</h1>",
        *(f'<p class="warn">{html.escape(note)}</p>' for note in notes(summary)),
        table([["ms", *_COLUMNS], *rows]),
        *map(image, images),
        f"<h2>All figures</h2><pre>{html.escape(json.dumps(summary, indent=1, default=str))}</pre>",
    ]
    return document(str(summary["label"]), parts)


def document(title: str, parts: Sequence[str]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the header."""
    header, *body = rows
    lines = ["".join(f"<th>{html.escape(one)}</th>" for one in header)]
    lines += ["".join(f"<td>{html.escape(one)}</td>" for one in row) for row in body]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def image(file: Path) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    return f'<p><img alt="{html.escape(file.stem)}" src="data:image/png;base64,{data}"></p>'


_COLUMNS = ("mean", "median", "p90", "p95", "p99")
