"""One clustering of `kmodes.KPrototypes`, in an environment of its own that has nothing of this project.

    python benchmarks/kmodes_worker.py ROWS.npz N_CLUSTERS GAMMA INIT STARTS

ROWS has arrays `numbers` (n, d) and `codes` (n, m). The library runs ten times on STARTS of the rows, and then on all
of them from the best prototypes so far; with STARTS 0 it runs ten times on all. Prints the prototypes as JSON.
"""

import json
import sys

import numpy as np
from kmodes.kprototypes import KPrototypes  # type: ignore[import-not-found]
from kmodes.util import encode_features  # type: ignore[import-not-found]

N_INIT = 10


def main() -> None:
    """Prints numbers and codes of the prototypes, and the cost that the library states."""
    path, k, gamma, init, starts = sys.argv[1:]
    with np.load(path) as file:
        numbers, codes = file["numbers"], file["codes"]
    d, rows = numbers.shape[1], np.hstack([numbers, codes.astype(np.float64)])
    columns = list(range(d, rows.shape[1]))
    some = np.random.default_rng(0).permutation(len(rows))[: int(starts) or None]
    model = KPrototypes(int(k), init=init, gamma=float(gamma), n_init=N_INIT, random_state=0)
    model.fit(rows[some], categorical=columns)
    if len(some) < len(rows):
        found = model.cluster_centroids_.astype(np.float64)
        numbered = encode_features(found[:, d:], enc_map=encode_features(rows[:, d:])[1])[0]
        model = KPrototypes(int(k), init=[found[:, :d], numbered], gamma=float(gamma), n_init=1, random_state=0)
        model.fit(rows, categorical=columns)
    found = model.cluster_centroids_.astype(np.float64)
    print(json.dumps({"numbers": found[:, :d].tolist(), "codes": found[:, d:].tolist(), "cost": float(model.cost_)}))


if __name__ == "__main__":
    main()
