"""Signals of a command for whoever is on call: lines of the log, metrics, and where they go."""
