"""Arrays as a numpy file with the number of the format; `dapple_dp.transforms.files.untrusted` reads them."""

import io
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.settings.format_number import with_number


def arrays_to_bytes(arrays: Mapping[str, NDArray]) -> bytes:
    """Returns arrays as an npz file with the number of the format; equal arrays give equal bytes.

    Raises:
      ValueError: for an array of objects.
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(sorted(with_number(arrays).items())))
    return buffer.getvalue()
