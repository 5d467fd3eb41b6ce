"""Jobs whose outputs are as private as their input: settings and results."""
