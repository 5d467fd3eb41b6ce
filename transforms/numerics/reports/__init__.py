"""Reports of one client, and what is computed from many."""
