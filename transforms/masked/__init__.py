"""Masked aggregation: what clients, the aggregator and those who unmask do."""
