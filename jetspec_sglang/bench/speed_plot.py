"""Plot of a serving benchmark: tokens per second by batch size, one line per configuration."""

from __future__ import annotations

from pathlib import Path

from jetspec_sglang.bench.speed import Config, Result


def plot_speeds(results: dict[tuple[Config, int], Result], file: Path) -> None:
    """Median with the spread as error bars. Writes an image."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines: dict[Config, dict[int, Result]] = {}
    for (config, batch), result in results.items():
        lines.setdefault(config, {})[batch] = result
    figure, axis = pyplot.subplots(figsize=(7, 4.5))
    for config, by_batch in lines.items():
        batches = sorted(by_batch)
        speeds = [by_batch[batch].speed for batch in batches]
        spread = [
            [speed.median - speed.low for speed in speeds],
            [speed.high - speed.median for speed in speeds],
        ]
        axis.errorbar(
            batches, [speed.median for speed in speeds], spread, marker="o", capsize=2,
            linestyle="--" if config.launch.rule is None else "-", label=config.name,
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted({batch for _, batch in results}))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("batch (concurrent requests)")
    axis.set_ylabel("tokens/s")
    axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
