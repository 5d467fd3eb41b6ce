"""The arena: private k-means of others and ours, on the same data, under the same attacks."""
