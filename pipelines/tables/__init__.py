"""The `prepare` job, and grouping of rows by client before other jobs."""
