"""The ledger: budgets that runs reserve and spend."""
