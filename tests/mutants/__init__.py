"""Mutants of the lines that must be right for epsilon: does a test notice each? See `tests.mutants.__main__`."""
