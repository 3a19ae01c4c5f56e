"""`LoadConfig`: one load test, validated. Options of the command line are generated from it.

Contract: pure. A wrong value is a ConfigError of one line that names the option, the value and
what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from loadtests.thresholds import Threshold, parse_threshold

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Arrivals = Literal["poisson", "constant", "gamma", "ramp", "step", "diurnal", "trace", "closed"]
SLO_METRICS = ("ttft", "tpot", "e2el")


class ConfigError(ValueError):
    """A load test that cannot be run as asked for."""


class LoadConfig(BaseModel):
    """What is sent, when, and how the result is judged. Field descriptions are the help texts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arrivals: Arrivals = Field(
        "poisson",
        description="how requests arrive: open loop (poisson, constant gaps, gamma gaps, a linear "
        "ramp, steps, a diurnal wave, the timestamps of a trace), or closed: --users clients, each "
        "with one request in flight",
    )
    rate: Positive = Field(1.0, description="mean requests per second; start of a ramp")
    seconds: Positive = Field(
        60.0, description="length of the arrivals, warm-up included; --run-time overrides it"
    )
    requests: Annotated[int, Field(ge=0)] = Field(
        0,
        description="stop after this many requests or after --seconds, whichever is first; 0: no limit",
    )
    burstiness: Positive = Field(
        1.0, description="shape of gamma gaps: below 1 burstier than Poisson, above 1 smoother"
    )
    end_rate: Positive = Field(4.0, description="rate at the end of a ramp")
    steps: tuple[Positive, ...] = Field((), description="rates of equally long steps: 1,4,1")
    amplitude: Annotated[float, Field(ge=0, le=1)] = Field(
        0.8, description="swing of a diurnal wave, as a share of --rate"
    )
    period: Positive = Field(60.0, description="seconds of one diurnal wave")
    trace: str = Field("", description="Azure or BurstGPT CSV, or Mooncake JSONL")
    slowdown_factor: Positive = Field(1.0, description="stretch the trace's time by this factor")
    skip_broken_lines: bool = Field(
        False, description="skip broken lines of the trace and count them, instead of an error"
    )
    seed: int = Field(0, description="seed of arrivals and of the order of prompts")
    warmup: NotNegative = Field(5.0, description="seconds of arrivals left out of the figures")
    prompts: str = Field(
        "chat", description="a JSONL file whose lines have prompt, question or text, or a named set"
    )
    unique_prompts: bool = Field(
        False, description="number the prompts, so that none is found in a prefix cache"
    )
    max_tokens: Count = Field(128, description="tokens of an answer, or its limit")
    lengths: Literal["fixed", "natural"] = Field(
        "fixed",
        description="fixed: the server ignores its end token; natural: answers end by themselves",
    )
    max_prompt_tokens: Count = Field(
        1024, description="longest prompt that is built to a trace's length (tokens are estimated)"
    )
    model: str = Field("", description="model name; empty: the first that the server lists")
    api: Literal["chat", "completions"] = Field("chat", description="chat or plain completions")
    temperature: NotNegative = Field(0.0, description="sampling temperature")
    extra_body: str = Field("", description="JSON object merged into every request")
    api_key_file: str = Field("", description="file with the API key; default: OPENAI_API_KEY")
    request_timeout: Positive = Field(600.0, description="seconds until a request is given up")
    stall_timeout: Positive = Field(
        60.0,
        description="seconds without a byte, after the first token, until a request is given up",
    )
    drain_timeout: Positive = Field(
        120.0, description="seconds to wait for answers after the last arrival"
    )
    abort_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="share of requests that the client cuts off while they are answered"
    )
    keep_text: bool = Field(False, description="write prompts and answers into requests.jsonl")
    slo: tuple[str, ...] = Field(
        (), description="latency objectives in ms: ttft:500,tpot:50,e2el:5000"
    )
    threshold: tuple[str, ...] = Field(
        (), description="limits that set the exit status: p99_ttft_ms<=500,failure_rate<=0.01"
    )
    max_lag_ms: Positive = Field(
        10.0, description="p99 of the send delay above which an open-loop run is rejected"
    )
    metrics_interval: NotNegative = Field(
        2.0, description="seconds between reads of the server's /metrics; 0: never"
    )
    prometheus: str = Field("", description="read the budget from this Prometheus instead")
    selector: str = Field("", description="label matchers of the server's series in Prometheus")
    report_dir: str = Field("", description="folder of the report (runs/<time>)")
    label: str = Field("", description="name of this configuration in tables and plots")

    @field_validator("steps", "slo", "threshold", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("slo")
    @classmethod
    def _slo_is_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            name, _, limit = one.partition(":")
            if name not in SLO_METRICS:
                raise ValueError(
                    f"{one!r}: must be one of {', '.join(SLO_METRICS)}, a colon and ms"
                )
            _positive(one, limit)
        return value

    @field_validator("threshold")
    @classmethod
    def _threshold_is_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            parse_threshold(one)
        return value

    @field_validator("extra_body")
    @classmethod
    def _is_object(cls, value: str) -> str:
        if value:
            try:
                found = json.loads(value)
            except ValueError as error:
                raise ValueError(f"is not JSON: {error}") from None
            if not isinstance(found, dict):
                raise ValueError("must be a JSON object")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> LoadConfig:
        if self.arrivals == "trace" and not self.trace:
            raise ValueError("--arrivals trace needs --trace FILE")
        if self.arrivals == "step" and not self.steps:
            raise ValueError("--arrivals step needs --steps, for example 1,4,1")
        if self.warmup >= self.seconds:
            raise ValueError(
                f"--warmup {self.warmup:g}: must be shorter than --seconds {self.seconds:g}"
            )
        return self

    @property
    def slos_ms(self) -> dict[str, float]:
        return {name: float(ms) for name, _, ms in (one.partition(":") for one in self.slo)}

    @property
    def thresholds(self) -> list[Threshold]:
        return [parse_threshold(one) for one in self.threshold]

    @property
    def open_loop(self) -> bool:
        return self.arrivals != "closed"


def load_config(values: Mapping[str, Any]) -> LoadConfig:
    """Validate. ConfigError with one line for the first wrong value."""
    try:
        return LoadConfig.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise ConfigError(message) from None
        name = str(first["loc"][0])
        raise ConfigError(f"--{name.replace('_', '-')} {_shown(values[name])}: {message}") from None


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _positive(whole: str, number: str) -> None:
    try:
        good = 0 < float(number) < float("inf")
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{whole!r}: {number!r} must be a number of ms above 0")
