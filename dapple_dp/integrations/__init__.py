"""Dapple inside of other systems: Beam YAML, RunInference, tables and lineage."""
