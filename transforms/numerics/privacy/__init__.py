"""Discrete noise, the keystream behind it, and private selection."""
