"""One thread for BLAS and OpenMP, whose libraries are looked for once, not at every use."""

import sys
from typing import Any

from threadpoolctl import ThreadpoolController

_known: tuple[int, ThreadpoolController] | None = None
"""How many modules there were when libraries were looked for, and what was found."""


def one_thread() -> Any:
    """Gives the libraries of this process one thread each, at once; as a context, until its end.

    Libraries come with modules, so they are looked for again if modules have been imported since. To look for them is
    to read the memory map of the process, which takes half as long as k-means of some hundred points.
    """
    global _known
    known = _known
    if known is None or known[0] != len(sys.modules):
        known = _known = len(sys.modules), ThreadpoolController()
    return known[1].limit(limits=1)
