"""Benchmarks: scripts whose results are committed with the command that made them."""
