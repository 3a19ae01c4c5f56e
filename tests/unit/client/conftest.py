"""Fixtures of these tests."""

from tests.support.chat_server import _no_outside_settings, server

__all__ = ["_no_outside_settings", "server"]
