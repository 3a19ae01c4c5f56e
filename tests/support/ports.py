"""Ports for servers, which listen up to a minute after their port was chosen."""

from __future__ import annotations

import random
import socket

PORTS = range(20000, 28000)
"""Below Linux's ephemeral ports, which any outgoing connection may take meanwhile."""

_claims: list[socket.socket] = []


def free_port() -> int:
    """A loopback port that nobody listens on; no other caller on this machine is given the same
    one before this process ends.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0jetspec-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return port
    raise RuntimeError(f"no free port from {PORTS.start} to {PORTS.stop - 1}")
