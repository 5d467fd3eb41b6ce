"""DoFns that work on a few thousand rows at a time."""

from transforms.files.lean_fn import LeanFn
from transforms.numerics.one_thread import one_thread


class SmallBlocksFn(LeanFn):
    """Gives BLAS one thread: for blocks so small more of them only cost, and workers use the cores."""

    def setup(self) -> None:
        """Keeps BLAS from starting threads."""
        one_thread()
        super().setup()
