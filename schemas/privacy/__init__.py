"""Promises and spending: plans, releases, charges, ledger entries, statements, the flow of private data."""
