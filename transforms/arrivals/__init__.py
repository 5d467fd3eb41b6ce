"""Messages of a topic: exactly those of recorded offsets, read by a bounded source and copied to private files."""
