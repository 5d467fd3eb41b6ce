"""The `dapple` command: words to jobs, and flags to options."""
