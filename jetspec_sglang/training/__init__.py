"""A draft head's training, from the target's own answers to an exported folder.

Contract: `run.train` does what a `recipe.Recipe` says and continues where a killed run stopped.
I/O: the run's folder.
"""
