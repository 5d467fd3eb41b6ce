"""The core on Apache Beam: a round as a PTransform, and the checker of a built graph."""
