"""Ports of `jetspec serve`: a number that is one, free, and held while a server loads.

I/O: binds sockets for an instant; a lock file in the cache folder.
"""

import fcntl
import os
import socket

from jetspec_sglang.client.errors import CommandError, UsageError


def require_port(port: int, flag: str) -> None:
    """Raise UsageError for an invalid port."""
    if not 0 < port < 65536:
        raise UsageError(f"{flag} is {port}: must be 1 to 65535")


def require_free(host: str, port: int, flag: str) -> None:
    """Raise CommandError when something listens on the port already."""
    require_port(port, flag)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(
                f"cannot listen on {host}:{port} ({error.strerror}); choose another with {flag}"
            ) from None


def hold(port: int, flag: str) -> None:
    """Keep a second `jetspec serve` off the port while this one loads, which takes a minute.

    The lock lives as long as this process and what it becomes. Raises CommandError when it is
    taken; where the cache cannot be written, there is none.
    """
    from jetspec_sglang.cache import cache_dir

    file = cache_dir() / "serve" / f"{port}.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CommandError(
            f"another `jetspec serve` is starting on port {port}; choose another with {flag}"
        ) from None
    os.set_inheritable(descriptor, True)
