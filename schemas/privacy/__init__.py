"""What is promised and spent: plans, releases, charges, ledger entries, statements, the flow of private data."""
