"""Heads judged offline: τ of every rule and budget on the target's stored answers.

Contract: no server. Exact at temperature 0, because the target's answers do not depend on drafting.
`datasets` reads the prompts, also for the benchmarks that do use a server.
"""
