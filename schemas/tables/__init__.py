"""Input tables: columns, contracts, shards, snapshots, encoders, and their settings."""
