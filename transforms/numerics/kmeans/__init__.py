"""Server steps of k-means protocols: seeding, folding, trees, rules of Lloyd rounds, drift."""
