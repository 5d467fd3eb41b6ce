"""The jobs of masked aggregation: upload, aggregate, unmask."""
