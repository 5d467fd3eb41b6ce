"""Formats of files below their libraries: what is settled before a parser, or instead of its words."""
