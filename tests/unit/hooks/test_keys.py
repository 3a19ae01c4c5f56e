"""What a server shows of its keys."""

from __future__ import annotations

import pytest

from jetspec_sglang.hooks.keys import HIDDEN, hide_fields, hide_flags


def shown(argv: list[str]) -> str:
    return hide_flags(lambda words, config=None: " ".join(words), argv, None)


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["--api-key", "k1", "--port", "1"], f"--api-key {HIDDEN} --port 1"),
        (["--admin-api-key=k1", "--api-key=k2"], f"--admin-api-key={HIDDEN} --api-key={HIDDEN}"),
        (["--admin-api", "k1"], f"--admin-api {HIDDEN}"),
        (["--api-key", "--api-key", "--port", "1"], f"--api-key {HIDDEN} --port 1"),
        (["--attention-backend", "fa3", "--api-key"], "--attention-backend fa3 --api-key"),
    ],
)
def test_flags(argv: list[str], wanted: str) -> None:
    assert shown(argv) == wanted


def test_fields() -> None:
    given = {"api_key": None, "admin_api_key": "k1", "port": 1}
    assert hide_fields(given, object()) == {
        "api_key": None,
        "admin_api_key": HIDDEN,
        "port": 1,
    }
    assert given["admin_api_key"] == "k1", "the server itself still needs it"
