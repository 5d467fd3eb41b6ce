"""The page that every report is: sections, style and plots."""
