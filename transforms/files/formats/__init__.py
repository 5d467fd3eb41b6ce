"""Formats of files below their libraries: checks that run before a parser, or in place of its messages."""
