"""Heads judged offline."""
