"""Grafana dashboards as code: `generate.py` writes `grafana/*.json`."""
