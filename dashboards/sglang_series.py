"""SGLang's series that the recording rules read, as data. No I/O.

The one list of SGLang's names in this project's dashboards and rules; a test compares it with the
source of the installed SGLang. Names are without the prefix `sglang:`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SglangMetric:
    """`labels` are those beyond the labels that every series of its process has."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...] = ()


SCHEDULER = (
    SglangMetric("num_running_reqs", "gauge"),
    SglangMetric("num_queue_reqs", "gauge"),
    SglangMetric("token_usage", "gauge"),
    SglangMetric("num_used_tokens", "gauge"),
    SglangMetric("kv_evictable_tokens", "gauge"),
    SglangMetric("max_total_num_tokens", "gauge"),
    SglangMetric("cache_hit_rate", "gauge"),
    SglangMetric("spec_accept_length", "gauge"),
    SglangMetric("spec_num_draft_tokens", "gauge"),
    SglangMetric("weight_memory_usage_gb", "gauge"),
    SglangMetric("kv_cache_memory_usage_gb", "gauge"),
    SglangMetric("graph_memory_usage_gb", "gauge", ("phase",)),
    SglangMetric("realtime_tokens_total", "counter", ("mode",)),
    SglangMetric("num_retracted_requests_total", "counter"),
    SglangMetric("cuda_graph_passes_total", "counter", ("mode",)),
    SglangMetric("scheduler_stage_seconds_total", "counter", ("category", "forward_overlap")),
    SglangMetric("scheduler_idle_seconds_total", "counter"),
    SglangMetric("queue_time_seconds", "histogram"),
)
"""One series a scheduler process, with `tp_rank`, `pp_rank`, `moe_ep_rank` and perhaps `dp_rank`."""

TOKENIZER = (
    SglangMetric("startup_time_seconds", "gauge", ("phase",)),
    SglangMetric("num_requests_total", "counter", ("is_streaming",)),
    SglangMetric("num_aborted_requests_total", "counter"),
    SglangMetric("prompt_tokens_total", "counter", ("is_streaming",)),
    SglangMetric("generation_tokens_total", "counter", ("is_streaming",)),
    SglangMetric("time_to_first_token_seconds", "histogram", ("is_streaming",)),
    SglangMetric("request_time_per_output_token_seconds", "histogram", ("is_streaming",)),
    SglangMetric("e2e_request_latency_seconds", "histogram", ("is_streaming",)),
)
"""One series a server."""

HTTP = (
    SglangMetric("http_requests_total", "counter", ("endpoint", "method")),
    SglangMetric("http_responses_total", "counter", ("endpoint", "status_code", "method")),
)
"""One series a server, without `model_name`."""

METRICS = SCHEDULER + TOKENIZER + HTTP

GENERATING_ENDPOINTS = (
    "/generate",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
)
"""Requests that make the model write; the others are probes and control calls."""
