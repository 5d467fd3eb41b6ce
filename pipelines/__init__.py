"""Jobs: each loads a config, builds a pipeline and runs it."""
