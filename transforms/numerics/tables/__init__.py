"""Rows split by client and sampled, in plain arrays."""
