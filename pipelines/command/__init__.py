"""The `dapple` command: runs jobs and tools, and parses flags."""
