"""k-medians under noise: rounds that sum directions from centers to rows."""
