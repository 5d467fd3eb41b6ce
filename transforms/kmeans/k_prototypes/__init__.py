"""k-prototypes under noise: clusters of rows that have numbers and codes."""
