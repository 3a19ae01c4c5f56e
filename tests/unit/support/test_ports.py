"""A port is given once, and never while somebody listens on it."""

import socket

import pytest

from tests.support import ports


def test_no_port_is_given_twice_or_while_taken(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match=f"from {port} to {port}"):
            ports.free_port()
    assert ports.free_port() == port
    with pytest.raises(RuntimeError, match="no free port"):
        ports.free_port()
