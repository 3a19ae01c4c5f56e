"""Servers, load and policies in simulated time: to compare policies, and to test ours."""
