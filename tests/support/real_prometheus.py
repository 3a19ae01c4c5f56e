"""A real Prometheus in a subprocess that scrapes the given instances."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml


@asynccontextmanager
async def running(
    program: str,
    folder: Path,
    instances: list[str],
    port: int,
    web: dict | None = None,
    scrape_s: int = 1,
) -> AsyncIterator[None]:
    """`web` is its web configuration: TLS and users."""
    config = {
        "global": {"scrape_interval": f"{scrape_s}s"},
        "scrape_configs": [
            {"job_name": "sglang", "static_configs": [{"targets": instances}]},
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "web.yml").write_text(yaml.safe_dump(web or {}))
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--web.config.file={folder}/web.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        await _until_listening(port, process, folder / "prometheus.log")
        yield
    finally:
        process.terminate()
        process.wait()


async def _until_listening(port: int, process: subprocess.Popen, log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise AssertionError(log.read_text())
