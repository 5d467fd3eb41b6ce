"""What `DPKMeans` takes in Python beside scikit-learn's `KMeans`: the first fit of a process, later ones, a search.

A first fit is measured in a process of its own, from `import` to its centers, with NumPy imported before, and pandas
where rows are a data frame. Pairs of both libraries follow each other. Plans that were found before would make a fit
cheaper, so each process has an empty cache of them. Bytecode is compiled before, as `pip install` does it.
"""

import importlib
import json
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine, measurement
from benchmarks.measurement import Figures

_MODULE = "benchmarks.estimator_speed"
_FORMS = {"array": "ndarray", "frame": "pandas DataFrame"}
_LIBRARIES = {"dapple": "DPKMeans", "sklearn": "KMeans"}
_STEPS = {"first": "import and first fit", "second": "second fit", "epsilon": "new epsilon"}
_KINDS = {"wall": "{:.2f}", "cpu": "{:.2f}", "rss": "{:.0f}"}
_N_ROWS, _N_FEATURES, _N_CLUSTERS, _N_PAIRS = 10_000, 4, 5, 9
_BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "domain": (-8.0, 8.0)}
_GOAL = 1.4


def _rows(form: str) -> Any:
    stream = np.random.default_rng(0)
    centers = stream.uniform(-5.0, 5.0, size=(_N_CLUSTERS, _N_FEATURES))
    rows = centers[stream.integers(_N_CLUSTERS, size=_N_ROWS)] + stream.normal(size=(_N_ROWS, _N_FEATURES))
    if form == "array":
        return rows
    pandas = importlib.import_module("pandas")
    return pandas.DataFrame(rows, columns=[f"column {index}" for index in range(_N_FEATURES)])


def _model(library: str, **more: Any) -> Any:
    """An estimator; imports its library."""
    if library == "sklearn":
        from sklearn.cluster import KMeans

        return KMeans(_N_CLUSTERS)
    from dapple_dp import DPKMeans

    return DPKMeans(_N_CLUSTERS, **_BUDGET | more)


def _search(library: str, rows: Any) -> None:
    """Fits 50 times: ten settings in five folds."""
    from sklearn.model_selection import GridSearchCV

    settings = {"n_clusters": range(2, 12)} if library == "sklearn" else {"n_clusters": range(2, 7), "epsilon": [1, 2]}
    GridSearchCV(_model(library), settings, cv=5, refit=False).fit(rows)


def _in_process(library: str, form: str) -> dict[str, Figures]:
    """All that is measured in one process, in this order."""
    rows = _rows(form)
    found = {"first": measurement.measured(lambda: _model(library).fit(rows))}
    found["second"] = measurement.measured(lambda: _model(library).fit(rows))
    if library == "dapple":
        found["epsilon"] = measurement.measured(lambda: _model(library, epsilon=1.5).fit(rows))
    return found


def _cold(cache: str, *words: str) -> Any:
    """A process that finds no plan of an earlier one."""
    with tempfile.TemporaryDirectory(dir=cache) as plans:
        os.environ["XDG_CACHE_HOME"] = plans
        return measurement.in_a_process(_MODULE, *words)


def _report(cold: Callable[..., Any], n_pairs: int) -> list[str]:
    lines = [f"{_N_ROWS:,} rows x {_N_FEATURES} features, {_N_CLUSTERS} clusters; medians of {n_pairs} processes.", ""]
    lines += [f"Load of the machine before: {' '.join(f'{each:.1f}' for each in os.getloadavg())}.", ""]
    table, ratios = [], []
    for form, name in _FORMS.items():
        runs: dict[str, list[dict[str, Figures]]] = {library: [] for library in _LIBRARIES}
        for turn in range(-1, n_pairs):
            for library in _LIBRARIES:
                measured = cold("--measure", library, form)
                if turn >= 0:
                    runs[library].append(measured)
        for library, title in _LIBRARIES.items():
            for step, words in {
                "first": "import and first fit",
                "second": "second fit",
                "epsilon": "new epsilon",
            }.items():
                if step in runs[library][0]:
                    middle = {kind: statistics.median(run[step][kind] for run in runs[library]) for kind in _KINDS}
                    table.append([name, title, words, *(_KINDS[kind].format(value) for kind, value in middle.items())])
        for kind in ("wall", "cpu"):
            pairs = zip(*(([run["first"][kind] for run in runs[library]]) for library in _LIBRARIES), strict=True)
            ratios.append([name, kind, f"{statistics.median(ours / theirs for ours, theirs in pairs):.2f}", f"{_GOAL}"])
    lines += measurement.table(("rows", "estimator", "step", "wall s", "CPU s", "peak MB"), table)
    lines += ["", "Import and first fit of `DPKMeans` over that of `KMeans`, the median of the pairs:", ""]
    lines += measurement.table(("rows", "clock", "ratio", "goal, at most"), ratios)
    lines += ["", "`GridSearchCV` of 50 fits, import included:", ""]
    searches = {title: cold("--search", library, "array") for library, title in _LIBRARIES.items()}
    cells = [[title, *(_KINDS[kind].format(took[kind]) for kind in _KINDS)] for title, took in searches.items()]
    return lines + measurement.table(("estimator", "wall s", "CPU s", "peak MB"), cells)


def main() -> None:
    """Measures one process, or all of them."""
    parser = measurement.script(__doc__)
    parser.add_argument("--pairs", type=int, default=_N_PAIRS, help="processes of each library")
    parser.add_argument("--measure", nargs=2, help="library and form of rows; for the processes of this script")
    parser.add_argument("--search", nargs=2, help="the same, for a search")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.measure:
        return print(json.dumps(_in_process(*arguments.measure)))
    if arguments.search:
        library, form = arguments.search
        rows = _rows(form)
        return print(json.dumps(measurement.measured(lambda: _search(library, rows))))
    with tempfile.TemporaryDirectory() as cache:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(cache, "bytecode")
        lines = _report(lambda *words: _cold(cache, *words), arguments.pairs)
    measurement.show([*machine.heading("First and later fits in Python"), *lines], arguments.out)


if __name__ == "__main__":
    main()
