"""Exact statistics on the lattice: frames, nearest centers, sums, norms."""
