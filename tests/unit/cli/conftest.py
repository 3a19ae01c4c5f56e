"""Fixtures of these tests."""

from tests.support.chat_server import _no_outside_settings, locked_server, server

__all__ = ["_no_outside_settings", "locked_server", "server"]
