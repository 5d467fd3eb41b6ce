"""Windows of an epoch: one round of weighted sums each, and what it alone adds."""
