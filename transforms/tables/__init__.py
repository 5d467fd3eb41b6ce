"""Reading: sources, snapshots, shards, contracts kept, rows grouped by client."""
