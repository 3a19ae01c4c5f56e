"""`make stack`: server, controller, Prometheus and Grafana on one machine, without containers.

A make target and not a `jetspec` command, because rules and dashboards lie in the repository and
not in the wheel: a command of the wheel would have nothing to load. It is `jetspec serve` with
more companions: the same checks, the same flags, the same supervisor.
"""
