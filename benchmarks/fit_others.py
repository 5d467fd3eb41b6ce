"""Fits of another package's private k-means; runs in that package's environment, which has nothing of this project.

    python benchmarks/fit_others.py JOBS.json FITS.npz

JOBS has a list of jobs under `jobs`. Each of them names its rows, `n_clusters`, `epsilon`, `bounds` and `seeds`, one
per fit. FITS has `centers_I` (fits, k, d), `inertia_I` and `n_iter_I` (fits,) of job number I.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
from diffprivlib.models import KMeans


def fits(job: dict[str, Any]) -> dict[str, np.ndarray]:
    """What is published after every fit of one job."""
    rows = np.array(job["rows"])
    found = [
        KMeans(job["n_clusters"], epsilon=job["epsilon"], bounds=tuple(job["bounds"]), random_state=seed).fit(rows)
        for seed in job["seeds"]
    ]
    names = {"centers": "cluster_centers_", "inertia": "inertia_", "n_iter": "n_iter_"}
    return {name: np.stack([getattr(each, field) for each in found]) for name, field in names.items()}


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)["jobs"]
    # One warning per fit, that scikit-learn's threads are not used, would fill the screen.
    warnings.simplefilter("ignore")
    done = [fits(job) for job in jobs]
    np.savez(sys.argv[2], **{f"{name}_{index}": one for index, each in enumerate(done) for name, one in each.items()})


if __name__ == "__main__":
    main()
