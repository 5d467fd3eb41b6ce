"""Clustered federated learning: clients' rows, rounds, and the judging of models."""
