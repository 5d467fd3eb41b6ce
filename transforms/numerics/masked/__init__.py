"""Masks: keyed streams, pairs of neighbors, and shares of secrets."""
