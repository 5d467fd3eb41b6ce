"""Pure functions on arrays: no Beam, no files, no clock, no global random state."""
