"""Private statistics of a table: settings, plan and result."""
