"""*JetSpec: engine*: SGLang's own signals, by their recorded names. No I/O."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as build

from dashboards.frame import ENGINE, engine_variables, frame, plan_changes
from dashboards.panels import Query, buckets, number, over_time, right_axis, row
from dashboards.promql import (
    engine,
    largest,
    quantile,
    rate,
    recorded,
    share,
    total,
    value,
)
from dashboards.sglang_series import GENERATING_ENDPOINTS
from dashboards.tables import labels_table
from jetspec_sglang.metric_list import INFO, INFO_LABELS, LAST_ROUND

RUNNING = recorded("dp_rank:sglang_num_running_reqs:max")
WAITING = recorded("dp_rank:sglang_num_queue_reqs:max")
USAGE = recorded("dp_rank:sglang_token_usage:max")
USED = recorded("dp_rank:sglang_num_used_tokens:max")
EVICTABLE = recorded("dp_rank:sglang_kv_evictable_tokens:max")
POOL = recorded("dp_rank:sglang_max_total_num_tokens:max")
HIT_RATE = recorded("dp_rank:sglang_cache_hit_rate:max")
RETRACTED = recorded("dp_rank:sglang_num_retracted_requests_total:max")
REALTIME = recorded("dp_rank_mode:sglang_realtime_tokens_total:max")
FINISHED = recorded("server:sglang_num_requests_total:max")
ABORTED = recorded("server:sglang_num_aborted_requests_total:max")
PROMPT = recorded("server:sglang_prompt_tokens_total:max")
GENERATED = recorded("server:sglang_generation_tokens_total:max")
REQUESTS = recorded("server_endpoint:sglang_http_requests_total:max")
RESPONSES = recorded("server_endpoint:sglang_http_responses_total:max")
TTFT = recorded("server_le:sglang_time_to_first_token_seconds_bucket:max")
E2E = recorded("server_le:sglang_e2e_request_latency_seconds_bucket:max")
QUEUE_TIME = recorded("dp_rank_le:sglang_queue_time_seconds_bucket:max")
ACCEPT_LENGTH = recorded("dp_rank:sglang_spec_accept_length:max")
DRAFT_TOKENS = recorded("dp_rank:sglang_spec_num_draft_tokens:max")
GRAPHS = recorded("dp_rank_mode:sglang_cuda_graph_passes_total:max")
STAGES = recorded("dp_rank_stage:sglang_scheduler_stage_seconds_total:max")
IDLE = recorded("dp_rank:sglang_scheduler_idle_seconds_total:max")
WEIGHTS = recorded("dp_rank:sglang_weight_memory_usage_gb:max")
KV_MEMORY = recorded("dp_rank:sglang_kv_cache_memory_usage_gb:max")
GRAPH_MEMORY = recorded("dp_rank_phase:sglang_graph_memory_usage_gb:max")
STARTUP = recorded("server_phase:sglang_startup_time_seconds:max")


def dashboard() -> build.Dashboard:
    """The dashboard's builder."""
    made = frame(
        ENGINE,
        "SGLang's own signals for the same servers: requests, queues, tokens, KV cache, latencies,"
        " scheduler and memory. Gauges of the scheduler are renewed every 40 decode rounds"
        " (--decode-log-interval), so they lag; counters do not.",
    )
    for variable in engine_variables(RUNNING.name):
        made = made.with_variable(variable)
    made = made.annotation(plan_changes())
    for title, panels in (
        ("What runs", _what()),
        ("Requests", _requests()),
        ("Tokens", _tokens()),
        ("KV cache", _cache()),
        ("Latency", _latency()),
        ("Scheduler", _scheduler()),
        ("Memory and start", _memory()),
    ):
        made = made.with_row(row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def _what() -> list[Any]:
    columns = {
        "instance": "server",
        "model_name": "model",
        **{label: label for label in INFO_LABELS},
    }
    return [
        labels_table(
            "Engines",
            "What each server runs, by its own report. Empty: the server is not a JETSPEC server.",
            Query(
                f"max by ({', '.join(columns)}) ({value(engine(INFO))})",
            ),
            columns,
            span=16,
            height=6,
        ),
        number(
            "Since the last round",
            "Longest time since a rank's last round. It grows while a server is idle; under load"
            " more than a minute means a hung scheduler.",
            "s",
            Query(f"time() - min by (instance) ({value(engine(LAST_ROUND))})", "{{instance}}"),
            span=8,
            height=6,
            decimals=0,
        ),
    ]


def _requests() -> list[Any]:
    generating = "~" + "|".join(GENERATING_ENDPOINTS)
    return [
        over_time(
            "Running and waiting requests",
            "By server. Waiting requests at the controller's lowest budget: add servers.",
            "short",
            Query(total(value(RUNNING), "instance"), "running {{instance}}"),
            Query(total(value(WAITING), "instance"), "waiting {{instance}}"),
        ),
        over_time(
            "Requests per second",
            "Arrivals at the routes that generate, requests finished, requests aborted.",
            "reqps",
            Query(total(rate(REQUESTS, endpoint=generating)), "arrived"),
            Query(total(rate(FINISHED)), "finished"),
            Query(total(rate(ABORTED)), "aborted"),
        ),
        over_time(
            "Arrivals by route",
            "HTTP requests per second at every route, probes and control calls included.",
            "reqps",
            Query(total(rate(REQUESTS), "endpoint"), "{{endpoint}}"),
        ),
        over_time(
            "Responses by status",
            "HTTP responses per second.",
            "reqps",
            Query(total(rate(RESPONSES), "status_code"), "{{status_code}}"),
            stacked=True,
        ),
    ]


def _tokens() -> list[Any]:
    speculation = over_time(
        "Speculation as SGLang sees it",
        "Accept length of the last log interval (left), and the budget that SGLang calls draft"
        " tokens (right).",
        "short",
        Query(f"avg by (instance) ({value(ACCEPT_LENGTH)})", "accept length {{instance}}"),
        Query(largest(value(DRAFT_TOKENS), "instance"), "draft tokens {{instance}}"),
        span=8,
    )
    return [
        over_time(
            "Tokens per second in the scheduler",
            "Counted as they are processed: decode, prefill computed, prefill from the cache.",
            "short",
            Query(total(rate(REALTIME), "mode"), "{{mode}}"),
            span=8,
        ),
        over_time(
            "Tokens per second of finished requests",
            "Counted when a request ends: late by its duration, and bursty.",
            "short",
            Query(total(rate(GENERATED)), "generated"),
            Query(total(rate(PROMPT)), "prompt"),
            span=8,
        ),
        right_axis(speculation, "B", "short", "draft tokens"),
    ]


def _cache() -> list[Any]:
    return [
        over_time(
            "KV cache in use",
            "Fullest rank of each server. From 0.95 on (kv_high_water) the controller raises no"
            " budget; near 1 requests are retracted.",
            "percentunit",
            Query(largest(value(USAGE), "instance"), "{{instance}}"),
            top=1,
        ),
        over_time(
            "Tokens in the KV cache",
            "All selected servers: in use, kept for reuse (evictable), size of the pools.",
            "short",
            Query(total(value(USED)), "in use"),
            Query(total(value(EVICTABLE)), "evictable"),
            Query(total(value(POOL)), "size"),
        ),
        over_time(
            "Retracted requests",
            "Requests per minute that were put back into the queue because the KV cache was full;"
            " their work is done again.",
            "cpm",
            Query(f"60 * {total(rate(RETRACTED), 'instance')}", "{{instance}}"),
        ),
        over_time(
            "Prefix cache hit rate",
            "Share of prompt tokens found in the cache, last prefill batch, mean of the ranks.",
            "percentunit",
            Query(f"avg by (instance) ({value(HIT_RATE)})", "{{instance}}"),
            top=1,
        ),
    ]


def _latency() -> list[Any]:
    return [
        buckets(
            "Time to first token",
            "Requests per second by time to first token. SGLang's smallest bucket is 0.1 s unless"
            " --bucket-time-to-first-token says otherwise.",
            "s",
            Query(total(rate(TTFT), "le"), "{{le}}"),
            span=8,
        ),
        over_time(
            "Request duration",
            "From arrival to the last token, all selected servers together.",
            "s",
            *(Query(quantile(q, E2E), f"p{100 * q:.0f}") for q in (0.5, 0.95, 0.99)),
            span=8,
        ),
        over_time(
            "Time in the queue",
            "Seconds a request waited before its prefill, all selected servers together.",
            "s",
            *(Query(quantile(q, QUEUE_TIME), f"p{100 * q:.0f}") for q in (0.5, 0.95, 0.99)),
            span=8,
        ),
    ]


def _scheduler() -> list[Any]:
    return [
        over_time(
            "Scheduler time by stage",
            "Share of the scheduler loop's time.",
            "percentunit",
            Query(share(rate(STAGES), "category"), "{{category}}"),
            stacked=True,
            top=1,
            span=8,
        ),
        over_time(
            "Idle share",
            "Share of wall time without anything to run or queued, mean of the ranks.",
            "percentunit",
            Query(f"avg by (instance) ({rate(IDLE)})", "{{instance}}"),
            top=1,
            span=8,
        ),
        over_time(
            "Forward passes by CUDA graph",
            "Passes per second. `decode_none` on a GPU: a budget without a captured graph. On the"
            " host there are no graphs.",
            "ops",
            Query(total(rate(GRAPHS), "mode"), "{{mode}}"),
            stacked=True,
            span=8,
        ),
    ]


def _memory() -> list[Any]:
    return [
        over_time(
            "Memory",
            "Weights, KV cache and graphs of the fullest tensor-parallel rank.",
            "decgbytes",
            Query(largest(value(WEIGHTS), "instance"), "weights {{instance}}"),
            Query(largest(value(KV_MEMORY), "instance"), "KV cache {{instance}}"),
            Query(
                largest(value(GRAPH_MEMORY), "instance", "phase"), "graphs {{phase}} {{instance}}"
            ),
        ),
        over_time(
            "Start-up time by phase",
            "Seconds of the last start. A change is a restart.",
            "s",
            Query(largest(value(STARTUP), "instance", "phase"), "{{phase}} {{instance}}"),
        ),
    ]
