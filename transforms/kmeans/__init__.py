"""Protocols that run in rounds, one folder each; a job names them by `algorithm`."""
