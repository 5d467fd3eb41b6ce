"""Integrations with other systems: Beam YAML, RunInference, and tables with lineage."""
