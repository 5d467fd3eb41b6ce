"""The `clustered_fl` job and what it writes."""
