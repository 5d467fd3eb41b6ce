"""Adapters, one system each. They run in the system's own environment, and import nothing of this project there."""
