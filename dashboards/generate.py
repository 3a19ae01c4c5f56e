"""Write the dashboards: `python dashboards/generate.py`; `--check` says whether they are current.

I/O: reads the recording rules, writes `grafana/*.json` beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # run as a script, only this folder is on the path
    sys.path.insert(0, str(ROOT))

from grafana_foundation_sdk.builders import dashboard as build  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402

from dashboards import controller, engine, tps_budget  # noqa: E402

FOLDER = ROOT / "dashboards" / "grafana"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="dashboards/generate.py")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file differs")
    options = parser.parse_args(arguments)
    files = texts()
    stale = [name for name in files if _read(FOLDER / name) != files[name]]
    extra = sorted({path.name for path in FOLDER.glob("*.json")} - set(files))
    if options.check:
        for name in (*stale, *extra):
            print(f"{FOLDER / name} is not what generate.py writes: run `make dashboards`")
        return 1 if stale or extra else 0
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(files[name])
        print(f"wrote {FOLDER / name}")
    for name in extra:
        (FOLDER / name).unlink()
        print(f"removed {FOLDER / name}")
    return 0


def texts() -> dict[str, str]:
    """Every dashboard's JSON by file name."""
    made = (module.dashboard() for module in (tps_budget, controller, engine))
    return {f"{one.build().uid}.json": text(one) for one in made}


def text(dashboard: build.Dashboard) -> str:
    """One dashboard as committed: panels numbered in their order, keys sorted."""
    plain = json.loads(json.dumps(dashboard.build(), cls=JSONEncoder))
    for number, panel in enumerate(plain["panels"], start=1):
        panel["id"] = number
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
