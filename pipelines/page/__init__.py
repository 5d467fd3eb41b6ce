"""Common parts of all report pages: sections, style and plots."""
