"""How settings are read: YAML text, sections that know their keys, refusals in one sentence."""
