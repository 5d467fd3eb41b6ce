"""The `dapple` command: words to jobs, flags to options, and the Flex Template."""
