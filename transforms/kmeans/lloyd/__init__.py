"""Rounds of sums and counts by cluster, after which centers move: what FedDP-KMeans, the tree and baselines share."""
