"""Messages of a topic, by the windows of a public calendar: their settings, their offsets, and their content."""
