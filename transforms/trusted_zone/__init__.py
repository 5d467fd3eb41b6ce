"""Steps without privacy, whose outputs stay where the input is."""
