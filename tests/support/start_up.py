"""What SGLang says to a command line before it loads anything: `python -m` with JSON on stdin.

Input: a list of [arguments, JETSPEC_SETTINGS]. Output: for each, null when the server would
start, else the error. Every case runs in a fork of one process that has SGLang imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

Case = tuple[Sequence[str], str]


def refusals(cases: Sequence[Case], environment: Mapping[str, str]) -> list[str | None]:
    """Run the cases in a subprocess; their errors in order."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.support.start_up"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return json.loads(finished.stdout.splitlines()[-1])


def _resolve(arguments: Sequence[str], settings: str) -> str | None:
    from sglang.srt.server_args import prepare_server_args

    os.environ["JETSPEC_SETTINGS"] = settings
    try:
        prepare_server_args(list(arguments)).resolve_once()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


def _forked(arguments: Sequence[str], settings: str) -> str | None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "w") as sink:
            json.dump(_resolve(arguments, settings), sink)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        answer = json.load(source)
    os.waitpid(child, 0)
    return answer


def main() -> None:
    from sglang.srt.plugins import load_plugins

    load_plugins()
    answers = [_forked(arguments, settings) for arguments, settings in json.load(sys.stdin)]
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
