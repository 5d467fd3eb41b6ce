"""What a fit writes beside the released tables."""
