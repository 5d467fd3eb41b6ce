"""Jobs that share settings with a private fit: fits without privacy, prepared copies, streams of windows, topics."""
