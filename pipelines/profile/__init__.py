"""A private description of a released model's clusters: the job, its page and its registry entry."""
