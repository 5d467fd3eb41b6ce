"""The data sets of the papers by name: where each comes from, under which licence, and how to know that it is the one.

Some are made here: scikit-learn brings them, or a generator draws them. The others have to be put into a folder once,
since nothing here reads the network: `benchmarks.data_files` makes NAME.npz of what publishers offer. `rows` checks
shape and values.

    python -m benchmarks.data --data FOLDER
"""

import hashlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement

Rows = NDArray[np.float64]
G2_ROWS = 2048
SYNTH_ROWS = 10_000
MOST_OUTLIERS = 100
ABLATION_ROWS = 2048
_QUANTILE = 1.959963984540054
"""Of 97.5%: clusters are as far apart as the middle 95% of their projections (Qiu and Joe's alpha of 0.05)."""
_UCI = "UCI Machine Learning Repository"
_UEF = "Clustering basic benchmark of the University of Eastern Finland"
_CC = "CC BY 4.0"
_CITE = "none stated; cite the source"


class DataSet(NamedTuple):
    """Source of a data set.

    Attributes:
      source: who publishes it.
      license: under which it may be passed on.
      shape: rows, features.
      n_clusters: k of the FastLloyd paper, or 0.
      digest: SHA-256 of the rows as C-ordered little-endian float64; None if nobody here has held the data.
      made: what makes the rows without a file, or None.
      array: name of the array in NAME.npz.
    """

    source: str
    license: str
    shape: tuple[int, int]
    n_clusters: int
    digest: str | None
    made: Callable[[], Rows] | None = None
    array: str = "X"


def iris() -> Rows:
    """Iris as UCI has it: three values differ from the corrected table that scikit-learn brings."""
    from sklearn.datasets import load_iris

    found = load_iris().data.astype(np.float64)
    found[34, 3] = 0.1
    found[37, 1:3] = 3.1, 1.5
    return found


def wine() -> Rows:
    """Wine, from scikit-learn."""
    from sklearn.datasets import load_wine

    found: Rows = load_wine().data.astype(np.float64)
    return found


SETS: dict[str, DataSet] = {
    "iris": DataSet(_UCI, _CC, (150, 4), 3, "58280bb559506628655ae68c493688079f736a0f3142f8b526ee3983cae22030", iris),
    "lsun": DataSet(
        "Ultsch (2005), Fundamental clustering problems suite",
        _CITE,
        (400, 2),
        3,
        "33bb5dfc6afc47ee0bca1b31a26f6c9a93e11b6756d9cf0882cd6f251da9b076",
    ),
    "s1": DataSet(_UEF, _CITE, (5000, 2), 15, "21c20e28e1ebba24edd6013072b2a4c62ecf58fa6b5e22bda71f14fbf6a99804"),
    "house": DataSet(_UEF, _CITE, (1837, 3), 3, "e565537d39f1285124cead2508c1ea1060ba8724ad4e8c75b8853c2a8fe0c42b"),
    "adult": DataSet(_UCI, _CC, (48842, 6), 3, "013411d757368ec153af735f653a7f5a2ba01b4e5af1485ec42d393bb1272e5e"),
    "wine": DataSet(_UCI, _CC, (178, 13), 3, "8edcf3903afd97c64d51e0212eb10b213f7943da650574d1c055b836c5c35d37", wine),
    "breast": DataSet(
        f"{_UCI}, Breast Cancer Wisconsin (Original)",
        _CC,
        (699, 9),
        2,
        "01fd4b6e905d6ea7d6f9c70d4f92d4d00471d1a536bbdcf240692a598101f77f",
    ),
    "yeast": DataSet(_UCI, _CC, (1484, 8), 10, "5c055cf5aa327c411397153c508b0a78e32fa56797d60159e2f64482a1b20f4d"),
    "mnist_784": DataSet(
        "LeCun, Cortes, Burges (1998), 10,000 of the images",
        "CC BY-SA 3.0",
        (10_000, 784),
        10,
        "8eea5bedbc86985a1b6fad96bd5156f8c39ab805c0b33f13e301f855d096ef11",
    ),
    "letter": DataSet(
        f"{_UCI}, Letter Recognition",
        _CC,
        (20_000, 16),
        26,
        "692f7bb7abde2df4d93a3251c561b91d3e6a76a1110ac657679550e1d35921d0",
    ),
    "gas": DataSet(
        f"{_UCI}, Gas Turbine CO and NOx Emission, with the year",
        _CC,
        (36_733, 12),
        6,
        "7c846f8ed1c83fe174a090f14efdba8eb6271f56997e8a9f54b72e6fe296b41f",
    ),
    "birch2": DataSet(
        f"{_UEF}, 25,000 of the rows",
        _CITE,
        (25_000, 2),
        100,
        "e894600b0d6cef6ae2cabf7720d079447d8d0b6a88afe8b2416f9e57a70edade",
    ),
}
"""Rows of features without labels, a file NAME.npz each."""


def rows(name: str, folder: Path | None = None) -> Rows:
    """Rows of a data set, shape (n, d), in the units of its source.

    Args:
      name: of `SETS`.
      folder: holds NAME.npz; may be None for a set that is made here.

    Raises:
      LookupError: if the set needs a file and no folder, or a folder without it, is given.
      ValueError: if the file holds something else: another shape, numbers that are not finite, or other values.
    """
    wanted = SETS[name]
    path = None if folder is None else folder / f"{name}.npz"
    if path is not None and path.exists():
        with np.load(path, allow_pickle=False) as file:
            found = np.ascontiguousarray(file[wanted.array], dtype="<f8")
    elif wanted.made is not None:
        found = wanted.made()
    else:
        raise LookupError(f"{name} needs {name}.npz with an array {wanted.array!r} of {wanted.shape}; give --data.")
    if found.shape != wanted.shape or not np.isfinite(found).all():
        raise ValueError(f"{name} must hold finite numbers of shape {wanted.shape}, got {found.shape}; see its source.")
    if wanted.digest not in (None, digest(found)):
        raise ValueError(f"{name} must have the SHA-256 {wanted.digest}, got {digest(found)}; it is not the same data.")
    return found


def digest(values: Rows) -> str:
    """SHA-256 of the values in C order as little-endian float64, whatever file they came in."""
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()


def g2(n_features: int, stddev: float = 30.0, seed: int = 0) -> Rows:
    """Two Gaussian clusters of 1,024 rows about (500, ...) and (600, ...), shape (2048, n_features).

    Source: Mariescu-Istodor and Zhong (2016), G2; `stddev` is 10 to 100 there.
    """
    random = np.random.default_rng([seed, n_features])
    middle = np.repeat([500.0, 600.0], G2_ROWS // 2)[:, None]
    return middle + random.normal(0.0, stddev, (G2_ROWS, n_features))


def separation_index(distance: float, stddevs: float) -> float:
    """Degree of separation of two clusters on a line, in (-1, 1): 0 if their middle 95% touch.

    Args:
      distance: of the two means, >= 0.
      stddevs: sum of the two stddevs on that line, > 0.

    Source: Qiu and Joe (2006), "Separation index and partial membership for clustering".
    """
    reach = _QUANTILE * stddevs
    return (distance - reach) / (distance + reach)


def synth(n_features: int, n_clusters: int, seed: int = 0, n_rows: int = SYNTH_ROWS) -> Rows:
    """Clusters of sizes 1 : 2 : ... : k with up to 100 outliers, shape (about n_rows, n_features).

    After clusterGeneration (Qiu and Joe) as FastLloyd calls it: the separation of the nearest two clusters is drawn
    from 0.16 to 0.26. Unlike there, covariances are diagonal, separation counts on the line through the two means, and
    means lie on a lattice.
    """
    random = np.random.default_rng([seed, n_features, n_clusters])
    weights = np.arange(1, n_clusters + 1) / (n_clusters * (n_clusters + 1) / 2)
    sizes = np.maximum(np.rint(weights * n_rows).astype(np.int64), 2)
    inside = _clusters(sizes, n_features, partial(random.uniform, 0.16, 0.26), random)
    outliers = random.uniform(
        inside.min(axis=0), inside.max(axis=0), (random.integers(0, MOST_OUTLIERS + 1), n_features)
    )
    return random.permutation(np.vstack([inside, outliers]))


def random_clusters(folder: Path | None, n_clusters: int, n_features: int, seed: int) -> Rows:
    """Clusters of the R package clusterGeneration, which `papers/random_clusters.R` writes, shape (about 10,000, d).

    Raises:
      LookupError: if the folder doesn't have this file.
    """
    path = Path(folder or ".") / f"synth_{n_clusters}_{n_features}_{seed}.csv"
    if not path.exists():
        raise LookupError(f"{path} must be there; papers/random_clusters.R writes it.")
    return np.loadtxt(path, delimiter=",")


def separated(n_features: int, n_clusters: int, separation: float, seed: int = 0) -> Rows:
    """Clusters of 70% to 130% of 2048/k rows whose nearest two have this separation, shape (1433 to 2662, n_features).

    After clusterGeneration as appendix B of FastLloyd calls it; what differs is as for `synth`.
    """
    random = np.random.default_rng([seed, n_features, n_clusters, round(1000 * separation)])
    mean_size = ABLATION_ROWS / n_clusters
    sizes = random.integers(math.ceil(0.7 * mean_size), math.floor(1.3 * mean_size) + 1, n_clusters)
    return random.permutation(_clusters(sizes, n_features, lambda: separation, random))


def _clusters(
    sizes: NDArray[np.int64], n_features: int, separation: Callable[[], float], random: np.random.Generator
) -> Rows:
    """Gaussian clusters one after the other; `separation` is asked for after variances and means."""
    variances = random.uniform(1.0, 10.0, (len(sizes), n_features))
    means = _lattice_points(n_features, len(sizes), random)
    means *= _scale(means, variances, separation())
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return means[labels] + random.normal(size=(len(labels), n_features)) * np.sqrt(variances[labels])


def timesynth(n_rows: int, n_features: int, n_clusters: int, seed: int = 0) -> Rows:
    """Clusters of equal sizes, for times and messages only, shape (n_rows, n_features)."""
    random = np.random.default_rng([seed, n_rows, n_features, n_clusters])
    means = _lattice_points(n_features, n_clusters, random)
    return means[np.arange(n_rows) % n_clusters] + random.normal(0.0, 0.1, (n_rows, n_features))


def _lattice_points(n_features: int, n_clusters: int, random: np.random.Generator) -> Rows:
    """Distinct points with coordinates 0, 1, ..., of the smallest side that has room for them."""
    side = 2
    while side**n_features < n_clusters:
        side += 1
    found: dict[bytes, NDArray[np.int64]] = {}
    while len(found) < n_clusters:
        point = random.integers(0, side, n_features)
        found.setdefault(point.tobytes(), point)
    return np.stack(list(found.values())).astype(np.float64)


def _scale(means: Rows, variances: Rows, separation: float) -> float:
    """The factor on all means with which the least separated two clusters have this separation."""
    wanted = (1.0 + separation) / (1.0 - separation)
    factor = 0.0
    for first in range(len(means) - 1):
        lines = means[first + 1 :] - means[first]
        lengths = np.linalg.norm(lines, axis=1)
        unit = (lines / lengths[:, None]) ** 2
        stddevs = np.sqrt((unit * variances[first]).sum(axis=1)) + np.sqrt((unit * variances[first + 1 :]).sum(axis=1))
        factor = max(factor, float((wanted * _QUANTILE * stddevs / lengths).max()))
    return factor


def table(folder: Path | None) -> list[str]:
    """Markdown lines: a data set each, and whether it is here."""
    lines = ["| name | rows | features | k | source | licence | SHA-256 | here |", "| --- " * 8 + "|"]
    for name, each in SETS.items():
        figures = f"{each.shape[0]:,} | {each.shape[1]} | {each.n_clusters}"
        known = each.digest[:16] if each.digest else "-"
        lines.append(f"| {name} | {figures} | {each.source} | {each.license} | {known} | {_state(name, folder)} |")
    return lines


def _state(name: str, folder: Path | None) -> str:
    try:
        rows(name, folder)
    except LookupError:
        return "no"
    except ValueError:
        return "other values"
    return "yes" if SETS[name].digest else "yes, not compared"


def main() -> None:
    """Prints the table."""
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, help="folder of npz files")
    options = parser.parse_args()
    measurement.show(table(options.data), options.out)


if __name__ == "__main__":
    main()
