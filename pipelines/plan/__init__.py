"""Commands around a run: `init`, `plan`, `verify` and `clean`."""
