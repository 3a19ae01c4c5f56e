"""Moves the tree budget of JetSpec servers while they serve."""

__version__ = "0.1.0"
