"""The key that draws in a run, which in the product only a `KeySource` computes."""

from dapple_dp.transforms.core import keys


def derived_key(kept: bytes, run: str, nonce: bytes) -> bytes:
    return keys._derived(kept, "dapple: key of a run", keys._salt(run, nonce))
