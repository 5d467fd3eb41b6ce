"""Messages of a topic: where its windows are cut, and a private copy of those that a window reads."""
