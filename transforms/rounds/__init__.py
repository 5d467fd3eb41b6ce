"""The round: statistics of shards, exact sums, noise, and the server step."""
