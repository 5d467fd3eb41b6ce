"""Reports of single clients, and results computed from many."""
