"""DP-Lloyd over windows: each one releases a weighted sum of its statistic and of those of the windows before it."""
