"""The checker: a built graph is walked before it runs, and what is not known is refused."""
