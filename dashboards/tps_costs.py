"""The rows on cost and service levels of *JetSpec: TPS versus budget*. No I/O."""

from __future__ import annotations

from typing import Any

from dashboards.panels import Query, over_time
from dashboards.promql import (
    RANGE,
    Series,
    engine,
    largest,
    quantile,
    rate,
    ratio,
    recorded,
    share,
    total,
    value,
)
from dashboards.tables import curve, matrix
from jetspec_sglang.metric_list import (
    REQUEST_ROUNDS,
    ROUND_COST,
    ROUND_SECONDS,
    ROUNDS,
    TOKENS,
    VERIFY_ROWS,
)

TTFT = recorded("server_le:sglang_time_to_first_token_seconds_bucket:max")
TPOT = recorded("server_le:sglang_request_time_per_output_token_seconds_bucket:max")
FINISHED = recorded("server:sglang_num_requests_total:max")
SECONDS = recorded("dp_rank_budget:jetspec_round_seconds:rate1m")
PLAIN_UPPER = recorded("dp_rank_budget:jetspec_plain_seconds_upper:rate1m")
PLAIN_LOWER = recorded("dp_rank_budget:jetspec_plain_seconds_lower:rate1m")
BATCH_TOKENS = recorded("dp_rank_budget_batch:jetspec_tokens:rate1m")
BATCH_SECONDS = recorded("dp_rank_budget_batch:jetspec_round_seconds:rate1m")


def speed(plain: Series, *by: str) -> str:
    """Estimated seconds of plain decoding over the seconds that were used."""
    return ratio(total(value(plain), *by), total(value(SECONDS), *by))


def on_time(buckets_: Series, bound: str) -> str:
    """Share of requests below a bound that is a bucket edge."""
    within = total(rate(buckets_, le=f"~{bound}(\\\\.0)?"))
    return ratio(within, total(rate(buckets_, le="=+Inf")))


def batch() -> list[Any]:
    by = ("batch", "budget")
    tokens = total(f"sum_over_time({BATCH_TOKENS.select()}[{RANGE}])", *by)
    seconds = total(f"sum_over_time({BATCH_SECONDS.select()}[{RANGE}])", *by)
    return [
        matrix(
            "Tokens per second by batch and budget",
            "Rows: mean running batch of a rank over a minute, rounded up to a power of two."
            " Columns: budget. Cells: tokens over seconds of rounds in the time range. Within a"
            " row the largest value is the budget that served this batch best.",
            "short",
            Query(ratio(tokens, seconds)),
            rows="batch",
            columns="budget",
        ),
        matrix(
            "Share of round time by batch and budget",
            "The same map: where the rounds of the time range were. A cell with a small share"
            " says little in the map beside it.",
            "percentunit",
            Query(
                f"{seconds} / ignoring (batch, budget) group_left ()"
                f" (sum(sum_over_time({BATCH_SECONDS.select()}[{RANGE}])) > 0)"
            ),
            rows="batch",
            columns="budget",
        ),
        over_time(
            "Mean batch by budget",
            "Requests per round at each budget, over all selected ranks. The controller runs large"
            " budgets with small batches.",
            "short",
            Query(
                ratio(
                    total(rate(engine(REQUEST_ROUNDS)), "budget"),
                    total(rate(engine(ROUNDS)), "budget"),
                ),
                "{{budget}}",
            ),
            span=24,
        ),
    ]


def speed_up() -> list[Any]:
    return [
        over_time(
            "Speed-up over plain decoding",
            "Estimated seconds of plain decoding for the same tokens at the same batch, divided"
            " by the seconds that were used. Plain decoding: one round per token, at the cost"
            " curve's value for as many rows as requests. This value can include a draft pass: `at"
            " most` uses it unchanged, `at least` subtracts the draft phase. Below 1 a smaller"
            " budget is better.",
            "short",
            Query(speed(PLAIN_UPPER), "at most"),
            Query(speed(PLAIN_LOWER), "at least"),
            decimals=2,
            span=8,
        ),
        over_time(
            "Speed-up by budget (at most)",
            "The same estimate for each budget, with the cost curve as it is.",
            "short",
            Query(speed(PLAIN_UPPER, "budget"), "{{budget}}"),
            decimals=2,
            span=8,
        ),
        curve(
            "Cost of a round by rows",
            "Moving average of a round's seconds by rows (batch x budget), of the slowest selected"
            " rank. Measured at start-up, then by the rounds that run.",
            "s",
            Query(largest(value(engine(ROUND_COST)), "model_name", "rows")),
            x="rows",
            x_label="rows",
            y="seconds",
            span=8,
            height=8,
        ),
    ]


def service() -> list[Any]:
    ttft, tpot = on_time(TTFT, "${ttft_bound}"), on_time(TPOT, "${tpot_bound}")
    return [
        _percentiles("Time to first token", "Of all requests, streamed or not.", TTFT),
        _percentiles(
            "Time per output token",
            "Of each finished request: seconds per token after the first. Tokens of one round"
            " arrive together, so gaps between chunks are larger.",
            TPOT,
        ),
        over_time(
            "Requests on time",
            "Share of requests within the two bounds chosen above. No line: the bound is not one"
            " of SGLang's bucket edges, or nothing ran.",
            "percentunit",
            Query(ttft, "TTFT within ${ttft_bound} s"),
            Query(tpot, "TPOT within ${tpot_bound} s"),
            span=6,
            top=1,
        ),
        over_time(
            "Goodput (at most)",
            "Finished requests per second, times the smaller of the two shares on time. The two"
            " histograms do not say which requests met both bounds, so this is an upper limit.",
            "reqps",
            Query(total(rate(FINISHED)), "finished"),
            Query(
                f"{total(rate(FINISHED))} * on () min({_named(ttft, 'ttft')} or"
                f" {_named(tpot, 'tpot')})",
                "on time, at most",
            ),
            span=6,
        ),
    ]


def rounds() -> list[Any]:
    per_round = (
        f"{total(rate(engine(ROUND_SECONDS)), 'phase')} / ignoring (phase) group_left ()"
        f" ({total(rate(engine(ROUNDS)))} > 0)"
    )
    return [
        over_time(
            "Seconds of a round by phase",
            "Mean round of the selected servers: draft (the head), tree, verify (the target),"
            " commit (move KV, feed the head).",
            "s",
            Query(per_round, "{{phase}}"),
            stacked=True,
        ),
        over_time(
            "Share of a round by phase",
            "Where the time of rounds goes.",
            "percentunit",
            Query(share(rate(engine(ROUND_SECONDS)), "phase"), "{{phase}}"),
            stacked=True,
            top=1,
        ),
        over_time(
            "Rounds per second by budget",
            "Rounds of all selected ranks.",
            "ops",
            Query(total(rate(engine(ROUNDS)), "budget"), "{{budget}}"),
        ),
        over_time(
            "Rows per second and rows per token",
            "Rows that the target computed (left), and rows per committed token (right).",
            "short",
            Query(total(rate(engine(VERIFY_ROWS))), "rows per second"),
            Query(
                ratio(total(rate(engine(VERIFY_ROWS))), total(rate(engine(TOKENS)))),
                "rows per token",
            ),
        ),
    ]


def _named(expr: str, name: str) -> str:
    return f'label_replace({expr}, "of", "{name}", "", "")'


def _percentiles(title: str, text: str, series: Series) -> Any:
    return over_time(
        title,
        f"{text} Percentiles over all selected servers together, between SGLang's bucket edges.",
        "s",
        *(Query(quantile(q, series), f"p{100 * q:.0f}") for q in (0.5, 0.95, 0.99)),
        span=6,
    )
