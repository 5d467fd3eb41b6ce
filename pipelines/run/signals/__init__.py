"""Log lines and metrics of a command for its operator, and their destinations."""
