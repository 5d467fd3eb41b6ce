"""Masked aggregation: its settings, and the messages among the parties."""
