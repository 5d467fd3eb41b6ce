"""Jobs: each turns options into a config, builds a pipeline and runs it."""
