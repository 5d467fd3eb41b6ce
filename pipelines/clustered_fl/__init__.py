"""The `clustered_fl` job and its outputs."""
