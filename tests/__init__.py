"""Tests of every package; `tests.support` holds what several of them share."""
