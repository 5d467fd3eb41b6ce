"""Runs that follow others: their settings, what they remember, and how they differ."""
