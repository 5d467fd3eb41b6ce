"""Records of the core: plans, privacy units, blocks of rows, releases."""
