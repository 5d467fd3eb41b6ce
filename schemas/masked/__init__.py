"""Masked aggregation: its settings, and the messages that parties exchange."""
