"""``python -m jetspec_controller.simulator``: the comparison of policies as a Markdown table."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
