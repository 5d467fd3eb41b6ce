"""Statements of pages on clusters, for `benchmarks.coverage`: that there are none, their names, and failed starts."""

import numpy as np
import pyarrow as pa

from benchmarks import coverage_kinds as kinds
from benchmarks.coverage_kinds import Found, Job, Rows
from dapple_dp.pipelines.kmeans.report import assumptions, report_warnings
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.page import Level
from dapple_dp.schemas.core.block import ClientBlock

WIDTHS = np.array([0.2, 0.1, 0.05, 0.05, 0.05, 0.05])
CLOUDS = ("round", "uniform", "long", "skewed")
FAILED = 1.5
"""A start has failed if the rows are this many times farther from the centers, squared, than from the best ones."""
GOOD = 1.1
"""A start is good if they lie at most this many times farther."""
STARTS = (0.03, 0.1, 0.3)
"""Epsilons at which starts fail now and then."""


def cloud(name: str, seed: int) -> Rows:
    """Rows without clusters, shape (n, d)."""
    rng, shape = np.random.default_rng([seed, 5]), (kinds.N_ROWS, kinds.N_FEATURES)
    rows = {
        "round": lambda: rng.normal(0.5, 0.12, shape),
        "uniform": lambda: rng.uniform(0.1, 0.9, shape),
        "long": lambda: 0.5 + rng.normal(size=shape) * WIDTHS,
        "skewed": lambda: 0.2 + rng.exponential(0.1, shape),
    }[name]()
    return np.clip(rows, 0.0, 1.0)


def of_one_cloud(name: str, seed: int) -> Found:
    """Tests if the page of a run on rows without clusters says so; the job alternates between two algorithms."""
    algorithm, more = ("dp_lloyd", {}) if seed % 2 else ("feddp_kmeans", kinds.SERVER)
    view = _view(kinds.job_of(algorithm, **more), cloud(name, seed), kinds.key_of(name, seed))
    return {"said that there are none": (int(bool(assumptions.of_clouds(view))), 1)}


def _view(job: Job, rows: Rows, key: bytes) -> FitView:
    return job.view(job.run(ClientBlock(rows), key)[1])


def of_starts(seed: int) -> Found:
    """Tests if a page warns of a run that missed clusters, and doesn't deny clusters that were found."""
    epsilon, rows = STARTS[seed % len(STARTS)], kinds.mixture(seed)
    privacy = {"unit": "record", "epsilon": epsilon, "delta": 1e-6}
    view = _view(kinds.job_of("dp_lloyd", privacy=privacy), rows, kinds.key_of("start", seed))
    costs = [_cost(rows, centers) for centers in (view.result.model.centers, kinds.MEANS)]
    if costs[0] > FAILED * costs[1]:
        said = report_warnings.warnings(view, report_warnings.run_checks(view))
        warned = any(each.level is Level.WARNING for each in said)
        return {"failed starts reported": (int(warned), 1)}
    if costs[0] > GOOD * costs[1]:
        return {}  # It has found the clusters, but not where they are.
    return {"clusters denied": (int(bool(assumptions.of_clouds(view))), 1)}


def _cost(rows: Rows, centers: Rows) -> float:
    return float(((rows - centers[kinds.nearest(rows, centers)]) ** 2).sum(axis=1).mean())


JOBS = ("clerk", "smith", "farmer", "nurse")
PARTS = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.4, 0.35, 0.15], [0.25, 0.25, 0.25, 0.25], [0.05, 0.05, 0.1, 0.8]])
"""How often each cluster has each value: clear, close and alike."""


def of_names(seed: int) -> Found:
    """Tests the values by which a page names clusters: false if the most frequent one of its rows is missing."""
    rng = np.random.default_rng([seed, 9])
    labels = rng.choice(kinds.N_CLUSTERS, kinds.N_ROWS, p=kinds.WEIGHTS)
    ages = np.clip(rng.normal(np.array([20.0, 40.0, 60.0, 80.0])[labels], 4.0), 0.0, 100.0)
    values = (rng.random(len(labels))[:, None] > PARTS.cumsum(axis=1)[labels]).sum(axis=1)
    job = kinds.job_of(
        "dp_lloyd",
        data={"path": "none", "features": ["age", "work"]},
        encode={
            "age": {"kind": "bounds", "lower": 0, "upper": 100, "to": "symmetric"},
            "work": {"kind": "one_hot", "vocabulary": list(JOBS), "weight": 0.3},
        },
        dp_lloyd={"domain": [-1.0, 1.0]},
    )
    encoder = job.encoder
    if encoder is None:
        raise ValueError("the job must encode columns; check its settings.")
    rows = encoder.encode(pa.table({"age": ages, "work": np.array(JOBS)[values]}), "rows")
    view = _view(job, rows, kinds.key_of("names", seed))
    nearest, false, made = kinds.nearest(rows, view.result.model.centers), 0, 0
    for index in np.flatnonzero(view.summary.found):
        named = view.summary.largest_of(int(index), slice(1, 1 + len(JOBS)))
        true = np.bincount(values[nearest == index], minlength=len(JOBS))
        false += true[[each - 1 for each in named]].max() < true.max()
        made += 1
    return {"false names": (int(false), made)}
