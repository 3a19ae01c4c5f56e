"""Draws Grafana dashboards from a live Prometheus with matplotlib.

The way of a panel: `variables` puts values into its queries, `prometheus` runs them, `frames` makes
Grafana's data frames of the answers, `transformations` and `fields` do to them what the panel's
JSON says, `panels` draws, `page` places. Only `prometheus` and the command do I/O.
"""
