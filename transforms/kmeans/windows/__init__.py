"""Windows of an epoch: one round of weighted sums each, and the part that each window adds."""
