"""Start-up settings: the defaults, and one clear error for whatever is wrong."""

import json

import pytest

from jetspec_sglang.settings import ENVIRONMENT_VARIABLE, Settings


def parse(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return Settings.from_environment({ENVIRONMENT_VARIABLE: text})


@pytest.mark.parametrize("environment", [{}, {ENVIRONMENT_VARIABLE: "  "}])
def test_unset_means_defaults(environment):
    assert Settings.from_environment(environment) == Settings()


def test_a_full_block_is_taken():
    settings = parse(
        {
            "budget": 32,
            "table": {"8": 16},
            "tiers": [1, 16, 32],
            "rule": "chain",
            "calibration_seconds": 0,
            "draft_trace": "trace.jsonl",
        }
    )
    assert settings.budget == 32
    assert settings.table == {8: 16}
    assert settings.tiers == (1, 16, 32)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"budgett": 1}, ["budgett", "allowed: budget"]),
        ({"budget": 0}, ["budget", "0"]),
        ({"budget": "16"}, ["budget", "'16'"]),
        ({"budget": 1.5}, ["budget", "1.5"]),
        ({"table": {"0": 8}}, ["table", "0"]),
        ({"table": {"x": 8}}, ["table", "x"]),
        ({"table": {"4": 5000}}, ["table.4", "5000"]),
        ({"tiers": [16, 8]}, ["tiers", "increases"]),
        ({"tiers": []}, ["tiers", "non-empty"]),
        ({"rule": "widest"}, ["rule", "widest", "best_first"]),
        ({"calibration_seconds": -1}, ["calibration_seconds", "-1"]),
        ([1], ["value"]),
        ("{", ["not JSON"]),
        ("NaN", ["nan", "an object"]),
    ],
)
def test_each_mistake_is_named(value, names):
    with pytest.raises(ValueError, match=ENVIRONMENT_VARIABLE) as error:
        parse(value)
    for name in names:
        assert name in str(error.value)
    assert "\n" not in str(error.value)
