"""DoFns that work on a few thousand rows at a time."""

import apache_beam as beam
from threadpoolctl import threadpool_limits


class SmallBlocksFn(beam.DoFn):
    """Gives BLAS one thread: for blocks so small more of them only cost, and workers use the cores."""

    def setup(self) -> None:
        """Keeps BLAS from starting threads."""
        threadpool_limits(limits=1)
        super().setup()
