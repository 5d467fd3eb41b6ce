"""Exact statistics on the integer lattice, and the bound on what one privacy unit adds to each."""
