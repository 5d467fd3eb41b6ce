"""From sums of reports to centers."""
