"""Rounds of a planned fit on rows in memory: the statistics, noise and server steps of `fit`, without Beam and files.

The keys of this noise are public, so nothing here may be released.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import FitConfig, validated
from dapple_dp.schemas.kmeans.sections.privacy_config import Shares
from dapple_dp.transforms.core import loop

Rows = NDArray[np.float64]


def client_block(rows: Rows, client_rows: int | None) -> ClientBlock:
    """Rows, shape (n, d), as clients of `client_rows` each, or as rows of nobody."""
    if client_rows is None:
        return ClientBlock(rows)
    return ClientBlock(rows, np.arange(0, len(rows) + 1, client_rows, dtype=np.int64))


def job(
    algorithm: str,
    unit: str,
    epsilon: float,
    n_clusters: int | Mapping[str, Any],
    seed: int,
    shares: Mapping[str, float] | None = None,
    **sections: Any,
) -> FitConfig:
    """A fit whose files nobody opens; `sections` replace or add sections, and `shares` splits its budget."""
    client = unit == "client"
    settings: dict[str, Any] = {
        "experimental": True,
        "algorithm": algorithm,
        "data": {"path": "unused", "features": "x", "client_id": "client_id" if client else None},
        "server_data": {"path": "unused"},
        "n_clusters": n_clusters,
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": 1e-6},
        "clipping": {"norm": "server_radius", "center": "server_mean", "client_rows": 50 if client else None},
        "seed": seed,
    }
    for name, value in sections.items():
        both = isinstance(value, Mapping) and isinstance(settings.get(name), Mapping)
        settings[name] = settings[name] | value if both else value
    config = validated(settings)
    if shares is None:
        return config
    return config.model_copy(update={"privacy": config.privacy.with_shares(Shares(**shares))})


def centers(config: FitConfig, server: Rows, block: ClientBlock, seed: int) -> Rows:
    """Centers of one run, shape (k, d), feature units.

    Args:
      config: of `job`.
      server: public points, shape (q, d).
      block: all rows.
      seed: of the noise.
    """
    return np.asarray(last_state(PublicFit.of(config, server), [block], seed).model().centers, dtype=np.float64)


def last_state(fit: PublicFit, blocks: Sequence[ClientBlock], seed: int) -> Any:
    """The state after the last round of a planned fit on the rows of all blocks; `seed` as of `centers`."""
    key = hashlib.sha256(b"papers in memory, a public key/%d" % seed).digest()
    with threadpool_limits(limits=1):
        return loop.simulate(fit.initial, fit.rounds, blocks, key).states[-1]
