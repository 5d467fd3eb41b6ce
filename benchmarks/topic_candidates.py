"""Whether centers of rows of tags tell which terms may be names, so that fewer cells are tested.

Of each cluster the terms whose public vectors its released center is nearest to are candidates. They have a part of the
false names that may be expected for themselves, and all other cells have the rest: noise of counts is not that of
centers, so the bound on false names holds for any parts. Draws are others than those by which anything was chosen.

    python -m benchmarks.topic_candidates --first 100 --draws 10
"""

import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, topics
from schemas.tables.terms_column import _term_vectors
from transforms.kmeans.spherical import names
from transforms.kmeans.spherical.server import KEPT, unit_rows

CLUSTERS, WIDTH = 20, 256
PARTS = {"no candidates": (0, 0.0), "candidates alone": (12, 1.0), "half of the false names for them": (12, 0.5)}


def lifts(model: Any, vectors: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much each center leans to each term, more than its share of all centers: shape (k, V)."""
    totals = np.zeros((CLUSTERS, WIDTH))
    for release in model.releases:
        if release.decoded.shape == totals.shape:
            totals = KEPT * totals + release.decoded
    return names.excesses(totals @ vectors.T, shares)


def thresholds(lift: NDArray[np.float64], most: int, part: float) -> NDArray[np.float64]:
    """Stddevs that a cell must be above, shape (k, V), by how many candidates a cluster has, and their part."""
    expected = (1.0 - names.OF_SHARES) * names.FALSE_NAMES
    chosen = np.argsort(np.argsort(-lift, axis=1), axis=1) < most
    odds = [expected * (1.0 - part) / max(int((~chosen).sum()), 1), expected * part / max(int(chosen.sum()), 1)]
    z = [-statistics.NormalDist().inv_cdf(each) if each > 0.0 else np.inf for each in odds]
    return np.where(chosen, z[1], z[0])


def given(model: Any, least: NDArray[np.float64]) -> list[list[int]]:
    """Names of each cluster, as `names.named` finds them with a threshold for each cell."""
    counts, sizes = model.releases[-1], model.releases[-2]
    shares = np.maximum(sizes.decoded, 0.0) / max(float(np.maximum(sizes.decoded, 0.0).sum()), sizes.stddev)
    largest = names.largest_shares(sizes.decoded, sizes.stddev)
    deviation = counts.stddev * np.sqrt((1.0 - largest) ** 2 + largest**2 * (CLUSTERS - 1))
    above = names.excesses(counts.decoded, largest) > least * deviation[:, None]
    strength = np.where(above, names.excesses(counts.decoded, shares), -np.inf)
    order = np.argsort(-strength, axis=1, kind="stable")[:, : names.MOST_NAMES]
    return [[int(term) for term in order[cluster] if above[cluster, term]] for cluster in range(CLUSTERS)]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=0.4)
    arguments = parser.parse_args()
    found = topics.tags()
    n_terms = len(found.vocabulary)
    vectors = unit_rows(_term_vectors(n_terms + 1, WIDTH).toarray()[:n_terms].astype(float))
    ((block, _, _),) = topics.by_row(found)
    config = topics.job(CLUSTERS, arguments.epsilon, "record", found.vocabulary)
    config = config.model_copy(update={"names": config.names.model_copy(update={"share": arguments.share})})
    right, false, asked, clear = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0), 0, 0
    with threadpool_limits(limits=1):
        for draw in range(arguments.first, arguments.first + arguments.draws):
            model = topics.run(config, block, WIDTH, draw)
            labels = (found.vectors @ model.centers.T.astype(np.float32)).argmax(axis=1)
            codes = found.codes.astype(int)
            cells = (labels[:, None] * n_terms + codes)[codes >= 0]
            exact = np.bincount(cells, minlength=CLUSTERS * n_terms).reshape(CLUSTERS, n_terms).astype(float)
            sizes = np.bincount(labels, minlength=CLUSTERS)
            excess = names.excesses(exact, sizes / sizes.sum())
            noisy = np.maximum(model.noisy_sizes, 0.0)
            lift = lifts(model, vectors, noisy / noisy.sum())
            large = np.flatnonzero(sizes >= 300)
            top = {cluster: np.argsort(-excess[cluster])[:3] for cluster in large}
            asked += 3 * len(large)
            clear += sum(
                int((excess[cluster, top[cluster]] > 3.5 * model.releases[-1].stddev).sum()) for cluster in large
            )
            for title, (most, part) in PARTS.items():
                called = given(model, thresholds(lift, most, part))
                right[title] += sum(len(set(called[cluster][:3]) & set(top[cluster].tolist())) for cluster in large)
                false[title] += sum(
                    excess[cluster, term] <= 0.0 for cluster in range(CLUSTERS) for term in called[cluster]
                )
    lines = [*machine.heading("Candidates for names"), "| tried | right | false names |", "| --- | --- | --- |"]
    lines += [f"| {title} | {right[title] / asked:.1%} of {asked} | {false[title]} |" for title in PARTS]
    lines += ["", f"{clear / asked:.1%} of what is asked is 3.5 stddevs of a count above its share, or more."]
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
