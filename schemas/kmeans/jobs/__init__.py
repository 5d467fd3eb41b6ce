"""Jobs that read the settings of a private fit, and are none: without privacy, on copies, window after window."""
