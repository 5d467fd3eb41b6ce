"""Rounds of sums and counts by cluster, after which centers move, and the public box: what protocols share."""
