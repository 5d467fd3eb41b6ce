"""What a run says of itself while it works: to people, and to the person on call."""
