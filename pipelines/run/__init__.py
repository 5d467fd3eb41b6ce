"""Parts of a run: its folder, graph, chunks of rounds and errors."""
