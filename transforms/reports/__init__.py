"""Reports that clients send in one round: encode, shuffle, decode."""
