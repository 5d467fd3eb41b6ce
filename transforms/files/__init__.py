"""Bytes in and out: published and private sinks, checkpoints, saved models, rows on local disk."""
