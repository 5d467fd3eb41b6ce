"""Protocols that run in rounds, a folder each, named as `algorithm` in a job."""
