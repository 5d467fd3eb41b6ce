"""Clustered federated learning: settings, plans, records of a round, and published results."""
