"""How settings and files are read: YAML and JSON text, sections that know their keys, refusals in one sentence."""
