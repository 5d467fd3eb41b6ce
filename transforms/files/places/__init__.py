"""Kinds of places for files, each a `Store`."""
