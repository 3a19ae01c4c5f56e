"""Audit lines: JSON, from the catalogue, rotated; and tokens, which name the actor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jetspec_controller.audit import AuditLog, Event
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.settings import ApiSettings, AuditSettings, SettingsError
from jetspec_controller.tokens import Tokens


def test_lines_are_json_with_time_event_and_actor(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    log = AuditLog(AuditSettings(path=path), ControllerMetrics(), lambda: 12.3456)
    log.write(Event.PIN_SET, actor="ops", target="a:1", reason='with "quotes" % and\nlines')
    log.close()
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {
        "at": 12.346,
        "event": "pin_set",
        "actor": "ops",
        "target": "a:1",
        "reason": 'with "quotes" % and\nlines',
    }


def test_file_rotates(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    settings = AuditSettings(path=path, max_bytes=10_000, backups=2)
    log = AuditLog(settings, ControllerMetrics(), lambda: 0.0)
    for _ in range(1000):
        log.write(Event.STARTED, version="x" * 50)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_size <= 10_000 for file in files)


def test_standard_output_without_a_path(capsys) -> None:
    log = AuditLog(AuditSettings(), ControllerMetrics(), lambda: 0.0)
    log.write(Event.STARTED)
    log.close()
    assert json.loads(capsys.readouterr().out)["event"] == "started"


def test_lost_lines_are_counted(caplog) -> None:
    metrics = ControllerMetrics()
    log = AuditLog(AuditSettings(path=Path("/dev/full")), metrics, lambda: 0.0)
    for _ in range(3):
        log.write(Event.STARTED)
    log.close()
    assert metrics.registry.get_sample_value("jetspec_controller_audit_errors_total") == 3
    assert caplog.text.count("audit lines are being lost") == 1


GOOD = "# operators\n\nops 0123456789abcdef\nfedcba9876543210\n"


def test_tokens_name_their_owner(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(GOOD)
    tokens = Tokens.load(ApiSettings(token_file=file))
    assert tokens.actor("0123456789abcdef") == "ops"
    assert tokens.actor("fedcba9876543210") == "token-4"
    for wrong in (None, "", "0123456789abcde", "0123456789abcdef ", "ops"):
        assert tokens.actor(wrong) is None
    assert "0123456789abcdef" not in repr(tokens)


def test_every_token_is_compared_whichever_is_presented(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "tokens"
    file.write_text(GOOD)
    tokens = Tokens.load(ApiSettings(token_file=file))
    compared: list[bytes] = []
    import hmac

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    for presented in ("0123456789abcdef", "nobody's"):
        compared.clear()
        tokens.actor(presented)
        assert len(compared) == 2


@pytest.mark.parametrize(
    "content", ["", "# none\n", "short\n", "a b c\n", "x 0123456789abcdef\nx 0123456789abcdeg\n"]
)
def test_unusable_token_files(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content)
    with pytest.raises(SettingsError, match="token_file"):
        Tokens.load(ApiSettings(token_file=file))


def test_no_token_needs_insecure(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--insecure"):
        Tokens.load(ApiSettings())
    with pytest.raises(SettingsError, match="none"):
        Tokens.load(ApiSettings(token_file=tmp_path / "none", insecure=True))
    assert Tokens.load(ApiSettings(insecure=True)).actor(None) == "anyone"
