"""What a job is, where it writes, and the one way in which all of them run."""
