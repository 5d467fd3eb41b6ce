"""Recurring runs: their settings, the memory of earlier releases, and drift between runs."""
