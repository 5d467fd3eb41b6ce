"""Parsing of settings and files: YAML and JSON text, sections of settings, errors in one sentence."""
