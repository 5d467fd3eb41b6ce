"""Parts that protocols share: rounds of sums and counts by cluster that move centers, and the public box."""
