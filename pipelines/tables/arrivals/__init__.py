"""Messages of a topic: cuts between windows, and private copies of the messages that a window reads."""
