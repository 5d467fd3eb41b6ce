"""Benchmarks that repeat the figures of papers."""
