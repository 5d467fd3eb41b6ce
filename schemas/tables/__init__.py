"""The input: columns, contracts, shards, snapshots, encoders, and the settings that name them."""
