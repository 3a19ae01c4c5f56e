"""The rows on throughput and accepted length of *JetSpec: TPS versus budget*. No I/O."""

from __future__ import annotations

from typing import Any

from dashboards.panels import Query, buckets, number, over_time, right_axis
from dashboards.promql import (
    RANGE,
    RATE,
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
from dashboards.tables import curve
from dashboards.tps_costs import PLAIN_LOWER, PLAIN_UPPER, TTFT, speed
from jetspec_sglang.metric_list import (
    ACCEPTED_NODE_BUDGET,
    RANK_BUCKETS,
    REQUEST_ROUNDS,
    ROUND_SECONDS,
    TOKENS,
    TREE_BUDGET,
)

RUNNING = recorded("dp_rank:sglang_num_running_reqs:max")
WAITING = recorded("dp_rank:sglang_num_queue_reqs:max")


def tokens_per_second(*by: str, window: str = RATE) -> str:
    """While a budget runs: tokens over seconds in rounds."""
    seconds = total(rate(engine(ROUND_SECONDS), window), *by)
    return ratio(total(rate(engine(TOKENS), window), *by), seconds)


def tau(*by: str) -> str:
    """Tokens per request per round."""
    return ratio(total(rate(engine(TOKENS)), *by), total(rate(engine(REQUEST_ROUNDS)), *by))


def tau_curve() -> str:
    """τ(B′) for each edge B′ of the rank histogram, from rounds whose own budget is at least B′:
    only those could have accepted every node up to B′."""
    points = []
    for edge in RANK_BUCKETS:
        ran = f"~{at_least(edge)}"
        within = engine(ACCEPTED_NODE_BUDGET, "bucket")
        nodes = total(rate(within, RANGE, le=f"={edge}.0", budget=ran), "model_name")
        rounds = total(rate(engine(REQUEST_ROUNDS), RANGE, budget=ran), "model_name")
        points.append(f'label_replace(1 + {ratio(nodes, rounds)}, "edge", "{edge}", "", "")')
    return " or ".join(points)


def at_least(low: int) -> str:
    """A regular expression of the decimal numbers from `low` (without leading zeros)."""
    digits = str(low)
    parts = [digits]
    for place, digit in enumerate(digits):
        if digit != "9":
            rest = len(digits) - place - 1
            above = "9" if digit == "8" else f"[{int(digit) + 1}-9]"
            parts.append(digits[:place] + above + ("[0-9]" * rest))
    parts.append("[1-9]" + "[0-9]" * (len(digits) - 1) + "[0-9]+")
    return "|".join(parts)


def now() -> list[Any]:
    return [
        number(
            "Tokens per second",
            "Tokens committed per second of wall time, all selected servers together.",
            "short",
            Query(total(rate(engine(TOKENS)))),
            decimals=1,
        ),
        number(
            "Budget in force",
            "Nodes verified per request in the last round: smallest and largest over the servers.",
            "short",
            Query(f"min({value(engine(TREE_BUDGET))})", "least"),
            Query(largest(value(engine(TREE_BUDGET))), "most"),
            decimals=0,
        ),
        number(
            "Requests",
            "Requests that decode and that wait now, all selected servers together.",
            "short",
            Query(total(value(RUNNING)), "running"),
            Query(total(value(WAITING)), "waiting"),
            decimals=0,
        ),
        number(
            "Accepted length τ",
            "Tokens committed per request per round, the bonus token included. 1 is plain"
            " decoding.",
            "short",
            Query(tau()),
            decimals=2,
        ),
        number(
            "Speed-up over plain (estimate)",
            "Estimated seconds of plain decoding for the same tokens at the same batch, divided"
            " by the seconds that were used. The row on speed-up explains it.",
            "short",
            Query(speed(PLAIN_LOWER), "at least"),
            Query(speed(PLAIN_UPPER), "at most"),
            decimals=2,
        ),
        number(
            "TTFT p95",
            "95 % of requests got their first token within this.",
            "s",
            Query(quantile(0.95, TTFT)),
        ),
    ]


def throughput() -> list[Any]:
    load = over_time(
        "Budget and load",
        "Running and waiting requests (left), budget of the last round (right). Marks are changes"
        " of the budget plan and the controller's decisions.",
        "short",
        Query(total(value(RUNNING), "instance"), "running {{instance}}"),
        Query(total(value(WAITING), "instance"), "waiting {{instance}}"),
        Query(
            largest(value(engine(TREE_BUDGET)), "instance", "dp_rank"),
            "budget {{instance}} {{dp_rank}}",
        ),
        span=24,
        height=9,
    )
    return [
        curve(
            "Tokens per second by budget",
            "Tokens committed at a budget divided by the seconds of its rounds, for one server or"
            " data-parallel rank, over the whole time range. Budgets ran at different loads: read"
            " it with the map of batch and budget below.",
            "short",
            Query(tokens_per_second("model_name", "budget", window=RANGE)),
            x="budget",
            x_label="budget",
            y="tokens/s",
        ),
        over_time(
            "Tokens per second while a budget runs",
            "Tokens committed at a budget divided by the seconds of its rounds, for one server or"
            " data-parallel rank. A line stops while its budget does not run.",
            "short",
            Query(tokens_per_second("budget"), "{{budget}}"),
            height=9,
        ),
        right_axis(load, "C", "short", "budget"),
        over_time(
            "Tokens per second, by the budget that made them",
            "Tokens per second of wall time. The top of the stack is the throughput of all"
            " selected servers.",
            "short",
            Query(total(rate(engine(TOKENS)), "budget"), "{{budget}}"),
            stacked=True,
        ),
        over_time(
            "Share of round time by budget",
            "Share of the time of rounds by budget.",
            "percentunit",
            Query(share(rate(engine(ROUND_SECONDS)), "budget"), "{{budget}}"),
            stacked=True,
            top=1,
        ),
    ]


def accepted() -> list[Any]:
    return [
        over_time(
            "Accepted length τ by budget",
            "Tokens committed per request per round at each budget, the bonus token included.",
            "short",
            Query(tau("budget"), "{{budget}}"),
            span=8,
            floor=1,
            decimals=2,
        ),
        curve(
            "τ(B) from accepted ranks",
            "Accepted length that a budget of B would have had, from the ranks of accepted nodes"
            " in rounds that ran at least B. Trees are nested, so one run tells for every smaller"
            " budget. Where it is flat a larger tree only costs.",
            "short",
            Query(tau_curve()),
            x="edge",
            x_label="budget",
            y="τ",
            span=8,
            height=8,
        ),
        buckets(
            "Budget that an accepted node needed",
            "Accepted nodes per second, by the smallest budget whose tree contains them (rank +"
            " 1). A bright top row: a larger budget would be accepted further.",
            "short",
            Query(total(rate(engine(ACCEPTED_NODE_BUDGET, "bucket")), "le"), "{{le}}"),
            span=8,
        ),
    ]
