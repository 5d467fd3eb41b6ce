"""Rows that wrong bounds have clipped, as the report reads them from released numbers, and good bounds that it leaves
alone."""

import re
import warnings

import numpy as np
import pyarrow as pa
import pytest
from sklearn import datasets

from dapple_dp import DPKMeans
from dapple_dp.pipelines.kmeans.report import report_warnings
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from tests.scenes import lake

RANGES = {"age": [17, 90], "hours": [0, 99], "income": [0, 200_000]}
WRONG = RANGES | {"income": [0, 1000]}
CLIPPED = "Nearly all centers lie at an end of the range of 'income'"


def people(n_rows=2000):
    """Ages, hours and incomes of six groups."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 6, n_rows)
    age = rng.normal(np.array([25, 35, 45, 55, 65, 75])[group], 3.0)
    hours = rng.normal(np.array([20, 45, 40, 50, 30, 5])[group], 4.0)
    income = np.exp(rng.normal(10.5, 0.4, n_rows))
    return {"age": np.clip(age, 17, 90), "hours": np.clip(hours, 0, 99), "income": income}


def told(folder, columns, epsilon=2.0, clients=None, **settings):
    """Warnings and notes of a run without Beam, as (level, text)."""
    table = pa.table(columns if clients is None else columns | {"client_id": clients})
    data = {"path": lake.write_files(folder / "rows", [table]), "features": list(columns)}
    unit = "record" if clients is None else "client"
    job = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "n_clusters": 6,
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": 1e-6},
    }
    if clients is not None:
        data["client_id"] = "client_id"
        job["clipping"] = {"client_rows": 2}
    fit = lake.planned(job | {"data": data} | settings)
    view = FitView.of(fit, lake.finished(fit, fit.contract.to_block(table, "rows")))
    return [(str(each.level), each.text) for each in report_warnings.warnings(view, report_warnings.run_checks(view))]


def outcomes_of(folder, table, **settings):
    """Returns what the page says of each check of a run without Beam."""
    data = {"path": lake.write_files(folder / "rows", [table]), "features": table.column_names}
    privacy = {"unit": "record", "epsilon": 8.0, "delta": 1e-6}
    job = {"experimental": True, "algorithm": "dp_lloyd", "data": data, "privacy": privacy} | settings
    fit = lake.planned(job)
    view = FitView.of(fit, lake.finished(fit, fit.contract.to_block(table, "rows")))
    return dict(report_warnings.checks(report_warnings.run_checks(view)).pairs)


def of_bounds(found, level="warning"):
    """Checks that compare centers with bounds, or with each other's columns."""
    starts = "an end of the range", "differ almost only", "as long as the clipping norm", "Almost all rows are clipped"
    return [text for each, text in found if each == level and any(start in text for start in starts)]


def encoded(ranges):
    return {name: {"kind": "bounds", "lower": low, "upper": high} for name, (low, high) in ranges.items()}


JOBS = {
    "dp_lloyd": lambda ranges: {"dp_lloyd": {"domain": ranges}},
    "listed": lambda ranges: {"dp_lloyd": {"domain": list(ranges.values())}},
    "packed": lambda ranges: {"dp_lloyd": {"domain": ranges, "init": "sphere_packing"}},
    "candidates": lambda ranges: {"dp_lloyd": {"domain": ranges, "init": "candidates"}},
    "encoded": lambda ranges: {"dp_lloyd": {"domain": [0, 1]}, "encode": encoded(ranges)},
    "central_tree": lambda ranges: {
        "algorithm": "central_tree",
        "tree": {"radius": 1.8},
        "encode": encoded(ranges),
        "lloyd": {"steps": 1},
    },
    "tree_without_lloyd": lambda ranges: {
        "algorithm": "central_tree",
        "tree": {"radius": 1.8},
        "encode": encoded(ranges),
    },
    "feddp_kmeans": lambda ranges: {
        "algorithm": "feddp_kmeans",
        "clipping": {"norm": 1.8, "center": "none"},
        "encode": encoded(ranges),
    },
}


@pytest.mark.parametrize("name", JOBS)
def test_a_range_that_cuts_a_column_off_is_warned_of_and_a_good_one_is_not(tmp_path, name):
    epsilon = 8.0 if name not in ("dp_lloyd", "listed", "candidates") else 1.0
    (text,) = of_bounds(told(tmp_path / "wrong", people(), epsilon, **JOBS[name](WRONG)))
    assert text.startswith(f"{CLIPPED} (1,000)")
    assert of_bounds(told(tmp_path / "good", people(), epsilon, **JOBS[name](RANGES))) == []


def test_the_lower_end_cuts_off_as_well(tmp_path):
    (text,) = of_bounds(told(tmp_path, people(), dp_lloyd={"domain": RANGES | {"income": [150_000, 300_000]}}))
    assert text.startswith(f"{CLIPPED} (150,000)")


def test_clients_are_no_exception(tmp_path):
    clients, columns = np.arange(4000) // 2, people(4000)
    clipped = told(tmp_path / "wrong", columns, 8.0, clients, dp_lloyd={"domain": WRONG})
    assert any(CLIPPED in text for text in of_bounds(clipped))
    assert of_bounds(told(tmp_path / "good", columns, 8.0, clients, dp_lloyd={"domain": RANGES})) == []


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_one_range_for_columns_of_different_units_is_warned_of(tmp_path, epsilon):
    found = of_bounds(told(tmp_path, people(), epsilon, dp_lloyd={"domain": [0, 200_000]}))
    assert any("'age' (0), 'hours' (0)" in text for text in found)


def test_centers_that_differ_in_one_column_are_warned_of_where_the_others_are_in_the_middle(tmp_path):
    found = told(tmp_path, people(), 8.0, dp_lloyd={"domain": [-200_000, 200_000]})
    assert any("The centers differ almost only in 'income'" in text for text in of_bounds(found))


def test_every_cluster_at_an_end_is_a_warning_of_its_own(tmp_path):
    """One group of six earns more than the range allows; all other groups do not."""
    columns = people() | {"income": np.where(people()["age"] > 70, 90_000.0, 20_000.0)}
    found = of_bounds(told(tmp_path, columns, 8.0, dp_lloyd={"domain": RANGES | {"income": [0, 50_000]}}))
    ends = [re.match(r"Center \d+ lies at an end of the range of 'income' \(50,000\)", text) for text in found]
    assert ends
    assert all(ends)


@pytest.mark.parametrize("half", [1.0, 0.5])
def test_a_check_says_that_it_cannot_see_rows_beyond_both_ends(tmp_path, half):
    """Most rows are outside, and every center is in the middle: nothing that is released shows it."""
    rng = np.random.default_rng(3)
    columns = {name: rng.normal(0.0, 4.0, 4000) for name in ("left", "right")}
    outside = np.abs(np.stack(list(columns.values()))).max(axis=0) > half
    lloyd = {"domain": [-half, half], "init": "sphere_packing"}
    assert outside.mean() > 0.8
    outcomes = outcomes_of(tmp_path, pa.table(columns), dp_lloyd=lloyd, n_clusters=1)
    assert outcomes["Private rows inside the ranges of the columns"] == "not visible in what this run released"


def test_no_check_of_private_rows_passes_by_what_it_cannot_see(tmp_path):
    """Good bounds look the same to centers as bounds that cut both ends off."""
    settings = {"dp_lloyd": {"domain": RANGES}, "n_clusters": 6}
    outcomes = outcomes_of(tmp_path, pa.table(people()), **settings)
    assert outcomes["Private rows inside the ranges of the columns"] == "not visible in what this run released"
    assert not {name for name, outcome in outcomes.items() if name.startswith("Private rows") and outcome == "passed"}


@pytest.mark.parametrize("epsilon", [1.0, 8.0, 50.0])
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
def test_known_data_in_good_bounds_are_left_alone(tmp_path, name, epsilon):
    rows = getattr(datasets, f"load_{name}")().data.astype(np.float64)
    columns = {f"column {index}": rows[:, index] for index in range(rows.shape[1])}
    domain = {each: [0.0, float(np.ceil(1.2 * values.max() + 1e-9))] for each, values in columns.items()}
    domain = {"iris": [0, 8], "digits": [0, 16]}.get(name, domain)
    assert of_bounds(told(tmp_path, columns, epsilon, n_clusters=3, dp_lloyd={"domain": domain})) == []


@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_columns_of_two_values_are_left_alone(tmp_path, epsilon):
    """Clusters of such columns lie at their ends, with all their rows, and nothing was clipped."""
    rng = np.random.default_rng(2)
    columns = {f"bit {index}": (rng.random(4000) < 0.4).astype(float) for index in range(4)}
    columns["number"] = rng.normal(0.0, 1.0, 4000)
    domain = {name: [0, 1] if name.startswith("bit") else [-4, 4] for name in columns}
    found = told(tmp_path, columns, epsilon, dp_lloyd={"domain": domain})
    assert of_bounds(found) == []


def test_mixtures_are_left_alone(tmp_path):
    points = lake.mixture(3000)
    columns = {f"x{index}": points[:, index] for index in range(4)}
    for number, epsilon in enumerate((0.3, 2.0, 20.0)):
        found = told(tmp_path / f"{number}", columns, epsilon, n_clusters=3, dp_lloyd={"domain": [-2, 7]})
        assert of_bounds(found) == []


def test_centers_show_a_ball_that_is_too_small_where_there_is_no_scatter(tmp_path):
    """DP-Lloyd in a ball: all rows lie far out on one side, and are shortened to its sphere."""
    points = lake.mixture(3000, means=np.array([[20.0, 2.0, 0.0], [20.0, -2.0, 0.0], [20.0, 0.0, 2.0]]))
    columns = {f"x{index}": points[:, index] for index in range(3)}
    job = {"n_clusters": 3, "dp_lloyd": {"domain": [-25, 25]}}
    found = of_bounds(told(tmp_path / "small", columns, 8.0, **job, clipping={"norm": 1.0}))
    assert any(text.startswith("Nearly all centers are as long as the clipping norm, 1,") for text in found)
    assert of_bounds(told(tmp_path / "large", columns, 8.0, **job, clipping={"norm": 25.0})) == []


def test_noise_that_hides_an_end_is_no_warning(tmp_path):
    assert of_bounds(told(tmp_path, people(60), 0.5, dp_lloyd={"domain": WRONG})) == []


def test_the_estimator_says_so_too():
    columns = people()
    rows = np.column_stack(list(columns.values()))
    model = DPKMeans(6, epsilon=2.0, delta=1e-6, algorithm="dp_lloyd", domain=list(map(tuple, WRONG.values())))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows)
    (text,) = of_bounds([("warning", each) for each in model.warnings_])
    assert text in [str(each.message) for each in caught]
