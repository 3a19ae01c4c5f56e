"""The README.md of an exported head: its shape, its training and its results.

Contract: pure; every figure comes from the run's own files or from an evaluation's results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jetspec_sglang.head.config import HeadConfig

_RECIPE = (
    "steps", "sequences", "anchors", "short_block_size", "short_share", "loss", "sft_share",
    "temperature", "gamma", "learning_rate", "warmup_steps", "min_lr_share", "beta2",
    "weight_decay", "clip_norm", "precision", "seed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataLine:
    """One source of answers: how many, how many response tokens, under which licence."""

    source: str
    answers: int
    response_tokens: int
    licence: str


def model_card(
    config: HeadConfig,
    *,
    target: str,
    settings: Mapping[str, Any],
    data: Sequence[DataLine],
    metrics: Sequence[Mapping[str, Any]],
    parameters: int,
    draft_vocab: int | None,
    results: Mapping[str, Any] | None = None,
    notes: str = "",
) -> str:
    """Markdown. `metrics`: lines of metrics.jsonl; `results`: an evaluation's results.json.

    `notes`: additional information in the author's words.
    """
    kind = "JetSpec (causal)" if config.causal else "DFlash (bidirectional)"
    vocabulary = (
        f"{draft_vocab:,} of {config.vocab_size:,} ids (`draft_vocab_ids.npy`)"
        if draft_vocab
        else "the target's whole vocabulary"
    )
    start = "an earlier head" if settings.get("start_from") else "the target's own layers"
    lines = [
        f"# {kind} draft head for {target}",
        "",
        "Released layout: loads with `jetspec serve --speculative-draft-model-path <this folder>`.",
        "",
        "| | |",
        "|---|---|",
        f"| layers, hidden size | {config.num_hidden_layers}, {config.hidden_size} |",
        f"| parameters | {parameters / 1e6:.2f} M |",
        f"| block | {config.block_size} rows, {config.depths} depths per pass |",
        f"| taps | {list(config.target_layer_ids)} of {config.num_target_layers} layers |",
        f"| mask id | {config.mask_token_id} |",
        f"| drafts from | {vocabulary} |",
        "",
        "## Data",
        "Answers that the target wrote itself, with its chat template.",
        "",
        "| source | answers | response tokens | licence of the prompts |",
        "|---|---|---|---|",
        *(
            f"| {line.source} | {line.answers:,} | {line.response_tokens:,} | {line.licence} |"
            for line in data
        ),
        "",
        "## Training",
        f"`jetspec train`, starting from {start}, with",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {settings[name]} |" for name in _RECIPE if name in settings),
        "",
    ]
    if notes:
        lines += [notes.strip(), ""]
    if metrics:
        lines += _progress(metrics)
    if results:
        lines += _figures(results)
    return "\n".join(lines).rstrip() + "\n"


def _progress(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    previous = 0
    seconds = 0.0
    for line in metrics:
        seconds += line["seconds_per_step"] * (line["step"] - previous)
        previous = line["step"]
    anchors = sum(line["anchors"] for line in metrics)
    chosen = metrics[:: max(1, len(metrics) // 8)]
    if chosen[-1] is not metrics[-1]:
        chosen = [*chosen, metrics[-1]]
    return [
        f"{previous:,} steps, {anchors:,} anchors, {seconds / 60:.0f} minutes of wall time "
        "(pauses and other work on the machine included).",
        "",
        "| step | loss | top-1 at depth 1 | 2 | 3 |",
        "|---|---|---|---|---|",
        *(
            f"| {line['step']} | {line['loss']:.3f} | "
            + " | ".join(f"{value:.3f}" for value in (line["accuracy"] + [0.0] * 3)[:3])
            + " |"
            for line in chosen
        ),
        "",
    ]


def _figures(results: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Figures",
        "Tokens per round (τ) at temperature 0 on prompts that training never saw, replayed with "
        "`jetspec eval`; B counts the root.",
        "",
    ]
    for name, by_head in results.items():
        for result in by_head.values():
            taus = result["tau"]
            budgets = list(next(iter(taus.values())))
            lines += [
                f"**{name}**, top-1 by depth "
                + " / ".join(f"{value:.2f}" for value in result["top1"]),
                "",
                "| rule | " + " | ".join(f"B={budget}" for budget in budgets) + " |",
                "|---" * (len(budgets) + 1) + "|",
                *(
                    f"| {rule} | " + " | ".join(f"{tau[b]:.2f}" for b in budgets) + " |"
                    for rule, tau in taus.items()
                ),
                "",
            ]
    return lines
