"""Private statistics of a table by PipelineDP and by rounds of our own."""
