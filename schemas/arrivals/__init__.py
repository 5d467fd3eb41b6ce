"""Messages of a topic, assigned to the windows of a public calendar: settings, offsets and content."""
