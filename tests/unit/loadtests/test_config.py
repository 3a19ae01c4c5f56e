"""Options: every wrong value is one line that names it."""

from __future__ import annotations

import argparse

import pytest

from loadtests.config import ConfigError, LoadConfig
from loadtests.options import GROUP, add_options, config_of


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": "0"}, "--rate 0: "),
        ({"rate": "-1"}, "--rate -1: "),
        ({"rate": "nan"}, "--rate nan: "),
        ({"rate": "inf"}, "--rate inf: "),
        ({"rate": "fast"}, "--rate fast: "),
        ({"arrivals": "uniform"}, "--arrivals uniform: "),
        ({"arrivals": "trace"}, "--arrivals trace needs --trace"),
        ({"arrivals": "step"}, "--arrivals step needs --steps"),
        ({"arrivals": "step", "steps": "1,0"}, "--steps 1,0: "),
        ({"amplitude": "1.5"}, "--amplitude 1.5: "),
        ({"abort_share": "2"}, "--abort-share 2: "),
        ({"burstiness": "0"}, "--burstiness 0: "),
        ({"max_tokens": "0"}, "--max-tokens 0: "),
        ({"max_tokens": "1.5"}, "--max-tokens 1.5: "),
        ({"slowdown_factor": "0"}, "--slowdown-factor 0: "),
        ({"lengths": "long"}, "--lengths long: "),
        ({"slo": "ttft:500,tpot"}, "--slo ttft:500,tpot: 'tpot': "),
        ({"slo": "itl:5"}, "must be one of ttft, tpot, e2el"),
        ({"slo": "ttft:nan"}, "must be a number of ms above 0"),
        ({"threshold": "p99_ttft_ms=5"}, "--threshold p99_ttft_ms=5: "),
        ({"extra_body": "{"}, "--extra-body {: is not JSON"),
        ({"extra_body": "[]"}, "must be a JSON object"),
        ({"warmup": "60"}, "--warmup 60: must be shorter than --seconds 60"),
    ],
)
def test_wrong_values(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(values)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_field_is_an_option_of_our_group() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    text = parser.format_help()
    assert f"{GROUP}:" in text
    for name, field in LoadConfig.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description
    assert config_of(vars(parser.parse_args([]))) == LoadConfig()
    given = ["--slo", "ttft:500, tpot:50", "--steps", "1,2", "--keep-text", "--rate", "3"]
    found = config_of(vars(parser.parse_args(given)))
    assert (found.slos_ms, found.steps) == ({"ttft": 500.0, "tpot": 50.0}, (1.0, 2.0))
    assert found.keep_text
    assert found.rate == 3.0
