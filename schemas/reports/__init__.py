"""Reports that clients send in one round: settings, public parameters, records and rows."""
