"""Files for operators: Prometheus, Grafana, containers, and a stack without containers."""
