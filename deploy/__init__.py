"""What an operator applies: Prometheus, Grafana, containers, and a stack without containers."""
