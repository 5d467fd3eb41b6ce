"""A run: its folder, its graph, its rounds in chunks, its errors."""
