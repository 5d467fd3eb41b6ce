"""Models, private gradients, and the clustering of their updates."""
