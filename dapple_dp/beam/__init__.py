"""Private clustering as a transform of Apache Beam: `rows | KMeans(5, epsilon=1.0, delta=1e-6, ...)`."""

from dapple_dp.beam.kmeans import KMeans

__all__ = ["KMeans"]
