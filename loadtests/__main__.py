"""Locust, with the locustfile's own options in its `--help`.

Locust 2.47 prints its help before it reads the locustfile; `main` reads the file first. The
environment of `make install` has this as its `locust`. `python -m loadtests` is the same with
`loadtests/locustfile.py` for the file. I/O: what Locust does.
"""

from __future__ import annotations

import sys
from pathlib import Path

LOCUSTFILE = Path(__file__).with_name("locustfile.py")


def main() -> None:
    """Run Locust on this process's arguments."""
    import locust.main  # patches the standard library: before anything else that uses it
    from locust import argument_parser
    from locust.util.load_locustfile import load_locustfile

    if {"-h", "--help"} & set(sys.argv[1:]):
        parser = argument_parser.get_empty_argument_parser(add_help=False)
        chosen, _ = parser.parse_known_args(
            [one for one in sys.argv[1:] if one not in ("-h", "--help")]
        )
        for file in argument_parser.parse_locustfile_paths(chosen.locustfile.split(",")):
            load_locustfile(file)
    locust.main.main()


if __name__ == "__main__":
    sys.argv[0] = "python -m loadtests"
    if not any(one in ("-f", "--locustfile") for one in sys.argv):
        sys.argv[1:1] = ["-f", str(LOCUSTFILE)]
    main()
