"""Signals of a command for the person on call: lines of the log, metrics, and where they go."""
