"""Benchmarks that redraw the papers' figures."""
