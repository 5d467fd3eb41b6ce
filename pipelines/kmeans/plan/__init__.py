"""Planning of a fit: reads public data and calibrates noise, without reading private data."""
