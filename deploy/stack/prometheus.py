"""Debian's Prometheus as a companion: the repository's configuration, for this machine's ports.

Contract: `configuration` is pure. `companion` writes `prometheus.yml` into the folder; data
(`prometheus/`) and the log lie beside it. Only loopback addresses are listened on and scraped.
I/O: reads deploy/prometheus/prometheus.yml, writes that file.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from jetspec_sglang.client.errors import CommandError, UsageError

SHIPPED = Path(__file__).parents[1] / "prometheus"
RETENTION_SIZE = "1GB"
_DURATION = re.compile(r"[1-9]\d*(ms|s|m|h|d|w|y)")


def installed() -> bool:
    return shutil.which("prometheus") is not None


def companion(
    folder: Path, port: int, retention: str, targets: Mapping[str, str]
) -> dict[str, Any]:
    """Prometheus that scrapes `targets` ({job: URL}) with the repository's rules."""
    if not _DURATION.fullmatch(retention):
        raise UsageError(f"--retention is {retention!r}: must be a number and a unit, as in 7d")
    shipped = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    config = folder / "prometheus.yml"
    try:
        config.write_text(yaml.safe_dump(configuration(shipped, targets), sort_keys=False))
    except OSError as error:
        raise CommandError(
            f"cannot write {config} ({error.strerror}); choose another folder with --data"
        ) from None
    page = f"http://127.0.0.1:{port}"
    return {
        "name": "Prometheus",
        "command": [
            shutil.which("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--storage.tsdb.retention.time={retention}",
            f"--storage.tsdb.retention.size={RETENTION_SIZE}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        "page": page,
        "ready": f"{page}/-/ready",
        "log": str(folder / "prometheus.log"),
    }


def configuration(shipped: Mapping[str, Any], targets: Mapping[str, str]) -> dict[str, Any]:
    """The shipped configuration with this machine's targets, and without an Alertmanager.

    Jobs without a target are left out. Rule files are named from the repository's folder.
    """
    jobs = {job["job_name"]: job for job in shipped["scrape_configs"]}
    if missing := targets.keys() - jobs.keys():
        raise CommandError(f"{SHIPPED / 'prometheus.yml'} has no job {', '.join(sorted(missing))}")
    return {
        "global": shipped["global"],
        "rule_files": [str(SHIPPED / pattern) for pattern in shipped["rule_files"]],
        "scrape_configs": [_job(jobs[name], url) for name, url in targets.items()],
    }


def _job(shipped: Mapping[str, Any], url: str) -> dict[str, Any]:
    kept = {key: value for key, value in shipped.items() if not key.endswith("_sd_configs")}
    address = urlsplit(url)
    kept["static_configs"] = [{"targets": [address.netloc]}]
    if address.scheme == "https":
        # The certificate names the host that clients use, not the loopback address.
        kept |= {"scheme": "https", "tls_config": {"insecure_skip_verify": True}}
    return kept
