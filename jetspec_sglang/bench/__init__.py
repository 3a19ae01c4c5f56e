"""Benchmarks on this machine: serving speed, rounds, trees, kernels.

Contract: measuring and summing up are apart, so that tables are pure functions of samples. A table
is written only from what was measured in the same run.
"""
