"""`jetspec-controller run`: the service, its HTTP server, signals and an orderly shutdown.

SIGTERM and SIGINT stop it, SIGHUP reloads the configuration. Does all the I/O of the process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from jetspec_controller.api.app import create_app
from jetspec_controller.service import Service
from jetspec_controller.settings import Settings, SettingsError

logger = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, because servers' budgets are restored after it has
    stopped."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings, config_path: Path | None, flags: Mapping[str, Any]) -> int:
    """Run until a signal; 1 if a part failed. Raises SettingsError or OSError at the start."""
    service = Service(settings, config_path=config_path, flags=flags)
    listener = _listen(settings.api.host, settings.api.port)
    await service.start()
    server = _Server(
        uvicorn.Config(
            create_app(service),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
    )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.create_task(_reload(service))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    waiting = asyncio.create_task(stopped.wait())
    parts: list[asyncio.Task[Any]] = [serving, waiting]
    if service.looping is not None:
        parts.append(service.looping)
    host, port = listener.getsockname()[:2]
    logger.info("serving on http://%s:%d", f"[{host}]" if ":" in host else host, port)
    done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    failed = waiting not in done
    for task in done - {waiting}:
        error = task.exception()
        logger.error("a part of the controller ended: %s", error or task.get_name())
    server.should_exit = True
    waiting.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await service.stop()
    return 1 if failed else 0


def _listen(host: str, port: int) -> socket.socket:
    """Opened before the controller changes any server, so that a port in use stops the start.
    Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise OSError(f"api.host and api.port: {error.strerror}") from error


async def _reload(service: Service) -> None:
    try:
        waiting = await service.reload("SIGHUP")
    except SettingsError as error:
        logger.error("the configuration was not reloaded: %s", error)
        return
    note = f"; after a restart: {', '.join(waiting)}" if waiting else ""
    logger.info("configuration %s is in force%s", service.settings.digest, note)
