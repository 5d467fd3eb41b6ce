"""The noise stage, its keys, and the accountants that calibrate and compose it."""
