"""What a run says of itself while it works: to people, and to whoever is on call."""
