"""Signals of a run while it works: messages for people, and metrics for operators."""
