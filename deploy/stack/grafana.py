"""Grafana as a companion, provisioned by the same files as in Compose and Helm.

Contract: anonymous readers only, on the loopback address; no account and no password is made, so
there is none to change. It starts with the first dashboard open. I/O: looks for the program.
"""

import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PROVISIONING = REPOSITORY / "deploy" / "grafana" / "provisioning"
DASHBOARDS = REPOSITORY / "dashboards" / "grafana"
HOME = DASHBOARDS / "jetspec-tps-budget.json"
_PACKAGED = Path("/usr/share/grafana")


def program() -> list[str] | None:
    """The command that runs Grafana's server, None where it is not installed."""
    if found := shutil.which("grafana"):
        return [found, "server", *_home_path(found)]
    if found := shutil.which("grafana-server"):
        return [found, *_home_path(found)]
    return None


def companion(program: list[str], folder: Path, port: int, prometheus_url: str) -> dict[str, Any]:
    """Grafana with its data in `folder`/grafana, reading Prometheus at the URL."""
    page = f"http://127.0.0.1:{port}"
    environment = {
        "JETSPEC_PROMETHEUS_URL": prometheus_url,
        "JETSPEC_DASHBOARDS": DASHBOARDS,
        "GF_PATHS_PROVISIONING": PROVISIONING,
        "GF_PATHS_DATA": folder / "grafana",
        "GF_PATHS_LOGS": folder / "grafana" / "log",
        "GF_PATHS_PLUGINS": folder / "grafana" / "plugins",
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": port,
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": HOME,
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    return {
        "name": "Grafana",
        "command": ["env", *variables, *program],
        "page": page,
        "ready": f"{page}/api/health",
        "log": str(folder / "grafana.log"),
    }


def _home_path(found: str) -> list[str]:
    """The folder of Grafana's own files: next to the program of an unpacked archive, or that of the
    package."""
    for home in (Path(found).resolve().parents[1], _PACKAGED):
        if (home / "conf" / "defaults.ini").is_file():
            return ["--homepath", str(home)]
    return []
