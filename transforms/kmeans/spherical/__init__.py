"""Spherical k-means under noise: rounds that sum rows, and names of clusters from a public vocabulary."""
