"""A fit made ready: public data read, noise calibrated, nothing private touched."""
