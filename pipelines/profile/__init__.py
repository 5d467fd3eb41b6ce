"""A private description of the clusters of a released model: the job, its page, its entry in the registry."""
