"""The one-round tree of half-spaces with a trusted aggregator."""
