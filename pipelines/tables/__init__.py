"""The `prepare` job, and clients brought together before a job."""
