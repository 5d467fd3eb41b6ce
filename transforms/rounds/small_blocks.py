"""DoFns that work on a few thousand rows at a time."""

from dapple_dp.transforms.numerics import one_thread
from dapple_dp.transforms.numerics.kernel import row_pass
from dapple_dp.transforms.on_beam.workers import LeanFn


class SmallBlocksFn(LeanFn):
    """Gives BLAS one thread, since more are slower for small blocks, and enables the compiled kernel."""

    def setup(self) -> None:
        """Keeps BLAS from starting threads."""
        row_pass.start()
        one_thread.limit()
        super().setup()
