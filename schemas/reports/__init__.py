"""Private reports that clients send once: settings, public parameters, records and rows."""
