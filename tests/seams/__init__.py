"""Every pair of features runs together, and says the same everywhere: see `python -m tests.seams --help`."""
