"""The compiled pass over rows of lattice integers; without it NumPy gives the same integers."""
