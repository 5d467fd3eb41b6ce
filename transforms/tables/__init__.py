"""Reading: sources, snapshots, shards, checks of contracts, and rows grouped by client."""
