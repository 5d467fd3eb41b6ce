"""Combines releases of a series: matching, drift, memory, windows."""
