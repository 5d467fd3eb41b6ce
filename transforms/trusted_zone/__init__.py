"""Steps without privacy, whose outputs stay in the trusted zone like the input."""
