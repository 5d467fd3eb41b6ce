"""Job records, their outputs, and the common steps that run every job."""
