"""Masked aggregation: the roles of clients, of the aggregator, and of those who unmask."""
