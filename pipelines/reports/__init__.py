"""The jobs of one-round clustering: encode, shuffle, decode."""
