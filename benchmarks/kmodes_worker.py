"""One clustering of `kmodes.KPrototypes`, in an environment of its own that has nothing of this project.

    python benchmarks/kmodes_worker.py ROWS.npz N_CLUSTERS GAMMA INIT

ROWS has arrays `numbers` (n, d) and `codes` (n, m). Prints the prototypes as JSON.
"""

import json
import sys

import numpy as np
from kmodes.kprototypes import KPrototypes  # type: ignore[import-not-found]

N_INIT = 10


def main() -> None:
    """Prints numbers and codes of the prototypes, and the cost that the library states."""
    path, k, gamma, init = sys.argv[1:]
    with np.load(path) as file:
        numbers, codes = file["numbers"], file["codes"]
    rows = np.hstack([numbers, codes.astype(np.float64)])
    columns = list(range(numbers.shape[1], rows.shape[1]))
    model = KPrototypes(int(k), init=init, gamma=float(gamma), n_init=N_INIT, random_state=0)
    found = model.fit(rows, categorical=columns).cluster_centroids_.astype(np.float64)
    d = numbers.shape[1]
    print(json.dumps({"numbers": found[:, :d].tolist(), "codes": found[:, d:].tolist(), "cost": float(model.cost_)}))


if __name__ == "__main__":
    main()
