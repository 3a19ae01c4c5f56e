"""`python -m jetspec_sglang.embedded`: fetch the embedded target if missing and print its folder."""

import sys

from jetspec_sglang.embedded.target import EmbeddedError, target_path


def main() -> int:
    try:
        print(target_path())
    except EmbeddedError as error:
        print(f"jetspec: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
