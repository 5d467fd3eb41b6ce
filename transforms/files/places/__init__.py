"""Kinds of places where files are, each a `Store`."""
