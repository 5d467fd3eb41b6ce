"""Files of a fit besides the released tables."""
