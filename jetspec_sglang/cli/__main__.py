"""`python -m jetspec_sglang.cli`: the `jetspec` command where a launcher wants a module."""

import sys

from jetspec_sglang.cli import main

if __name__ == "__main__":
    sys.exit(main())
