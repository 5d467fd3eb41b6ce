"""Habits of scikit-learn's users that `DPKMeans` keeps, or refuses in one sentence; fits are real ones."""

import contextlib
import json
import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest
from joblib import parallel_backend
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score, validation_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dapple_dp.api import DPKMeans, PrivateScaler
from dapple_dp.estimator import dp_kmeans
from dapple_dp.schemas.errors import BudgetExceededError, ConfigError, InputError, PrivacyWarning
from tests.scenes import ledgers

CENTERS = np.array([[30.0, 10.0], [60.0, 80.0]])
BUDGET = {"epsilon": 5.0, "delta": 1e-6}
DOMAIN = {"age": (17, 90), "hours": (0, 99)}


def matrix(n_rows: int = 600, seed: int = 0):
    rng = np.random.default_rng(seed)
    return CENTERS[rng.integers(0, 2, n_rows)] + rng.normal(size=(n_rows, 2))


def named(rows, *names: str):
    return pa.table(dict(zip(names or ("age", "hours"), rows.T.copy(), strict=True)))


def people(n_rows: int = 600, seed: int = 0):
    """The rows as a table with names."""
    return named(matrix(n_rows, seed))


@pytest.fixture
def asked(monkeypatch):
    """Jobs that are run."""
    found, run = [], dp_kmeans.run_in_memory
    monkeypatch.setattr(dp_kmeans, "run_in_memory", lambda config, *more: found.append(config) or run(config, *more))
    return found


@parametrize_with_checks([PrivateScaler(bounds=(-10.0, 10.0))])
def test_the_scaler_keeps_all_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("parameters", "with_server", "algorithm"),
    [
        ({"domain": (0, 99)}, False, "dp_lloyd"),
        ({"domain": [(17, 90), (0, 99)]}, False, "dp_lloyd"),
        ({"domain": np.array([[17, 90], [0, 99]])}, False, "dp_lloyd"),
        ({"domain": DOMAIN}, False, "dp_lloyd"),
        ({"clipping_norm": 120}, False, "dp_lloyd"),
        ({"clipping_norm": np.float64(120), "domain": (0, 99)}, False, "dp_lloyd"),
        ({}, True, "feddp_kmeans"),
        ({"domain": DOMAIN}, True, "dp_lloyd"),
        ({"clipping_norm": 120, "settings": {"quality": {}}}, False, "central_tree"),
        ({"clipping_norm": 120, "n_clusters": {"max": 4, "choose": "elbow"}}, False, "central_tree"),
        ({"algorithm": "central_tree", "clipping_norm": 120}, True, "central_tree"),
        ({"algorithm": "dp_lloyd", "clipping_norm": 120}, True, "dp_lloyd"),
    ],
)
def test_every_private_algorithm_is_a_parameter(asked, parameters, with_server, algorithm):
    model = DPKMeans(**({"n_clusters": 2} | BUDGET | parameters))
    model.fit(people(), server_data=people(50, seed=1) if with_server else None)
    assert model.algorithm_ == algorithm == asked[0].algorithm
    assert asked[0].data.features == ("age", "hours")


def test_the_number_of_rounds_is_that_of_the_algorithm(asked):
    rows, server = people(), people(50, seed=1)
    for steps in (None, 3):
        DPKMeans(2, **BUDGET, domain=(0, 99), lloyd_steps=steps).fit(rows)
        DPKMeans(2, **BUDGET, lloyd_steps=steps).fit(rows, server_data=server)
    assert [job.dp_lloyd.steps for job in asked[::2]] == [2, 3]
    assert [job.lloyd.steps for job in asked[1::2]] == [1, 3]


def test_random_state_is_public_randomness(asked):
    for state in (None, 7, np.int64(7), np.random.RandomState(0), np.random.RandomState(0)):
        DPKMeans(2, **BUDGET, domain=(0, 99), random_state=state).fit(people())
    seeds = [job.seed for job in asked]
    assert seeds[:3] == [None, 7, 7]
    assert seeds[3] == seeds[4]


def test_server_columns_are_matched_by_name(monkeypatch):
    found, run = [], dp_kmeans.run_in_memory
    monkeypatch.setattr(dp_kmeans, "run_in_memory", lambda *given: found.append(given) or run(*given))
    rows, server = people(), people(50, seed=1)
    DPKMeans(2, **BUDGET).fit(rows, server_data=server.select(["hours", "age"]))
    np.testing.assert_array_equal(found[0][2].columns.points, matrix(50, 1))


@pytest.mark.parametrize(
    ("rows", "server", "rule"),
    [
        (people(), named(matrix(), "age", "salary"), "columns of X, got 'hours', 'salary' in only one of them"),
        (people(), people().append_column("extra", [np.ones(600)]), "columns of X, got 'extra' in only one of them"),
        (people(), people().select(["age"]), "columns of X, got 'hours' in only one of them"),
        (people(), matrix(seed=1), "column names if X has them, and none otherwise, got names in X and none"),
        (matrix(), people(seed=1), "got names in server_data and none in X"),
        (matrix(), matrix(seed=1)[:, :1], "server_data must have the 2 features of X, got 1"),
        (people(), named(matrix() * np.nan), "server_data must be finite"),
    ],
)
def test_server_columns_that_cannot_be_matched_are_refused(asked, rows, server, rule):
    with pytest.raises(InputError, match=rule):
        DPKMeans(2, **BUDGET).fit(rows, server_data=server)
    assert not asked


def test_a_scaler_that_only_the_rows_went_through_is_noticed(asked):
    """A scaler returns an array; the server data kept their names."""
    pipeline = make_pipeline(StandardScaler(), DPKMeans(2, **BUDGET))
    with pytest.raises(InputError, match="If X comes from a transformer, transform server_data as well"):
        pipeline.fit(people(), dpkmeans__server_data=people(50, seed=1))


def test_the_scaler_that_learns_nothing_leads_a_pipeline(asked):
    scaler, rows = PrivateScaler(bounds=DOMAIN), people()
    make_pipeline(scaler, DPKMeans(2, **BUDGET, domain=(-1, 1))).fit(rows)
    assert asked[0].dp_lloyd.domain == (-1.0, 1.0)
    moved = clone(scaler).fit(named(matrix() * 7 + 5))
    np.testing.assert_array_equal(moved.transform(rows), scaler.transform(rows))
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(rows)), matrix())
    assert scaler.get_feature_names_out().tolist() == ["age", "hours"]
    assert np.abs(scaler.transform(named(matrix() * 1e6))).max() == 1.0


@pytest.mark.parametrize(
    ("bounds", "rule"),
    [
        ({"age": (0, 1)}, "got 'hours' in only one of them"),
        ({"salary": (0, 1)}, "got 'age', 'hours', 'salary' in only one of them"),
        (DOMAIN | {"salary": (0, 1)}, "got 'salary' in only one of them"),
        ([(0, 1)] * 3, "one for each of the 2 columns"),
        ((1, 0), "clearly below"),
        ((0, np.inf), "must be finite"),
        ((0, np.nan), "must be finite"),
        ([(0, 1), (5, 5)], "clearly below"),
        ("wide", "a pair of numbers"),
        (None, "a pair of numbers"),
    ],
)
def test_bounds_that_scale_nothing_are_refused(bounds, rule):
    with pytest.raises(ConfigError, match=rule):
        PrivateScaler(bounds=bounds).fit(people())


def test_messages_about_rows():
    rows = people()
    model = DPKMeans(2, **BUDGET, domain=(0, 99)).fit(rows)
    distances = model.transform(rows)
    np.testing.assert_allclose(distances[0], np.linalg.norm(model.cluster_centers_ - matrix()[0], axis=1))
    np.testing.assert_array_equal(distances.argmin(axis=1), model.predict(rows))
    assert model.score(rows) == pytest.approx(-(distances.min(axis=1) ** 2).sum())
    assert model.get_feature_names_out().tolist() == ["dpkmeans0", "dpkmeans1"]
    assert model.set_output(transform="default") is model
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(rows.select(["hours", "age"]))


def test_weights_and_parts_are_no_parameters(asked):
    model = DPKMeans(2, **BUDGET, domain=(0, 99))
    assert not hasattr(model, "partial_fit")
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(people(), sample_weight=np.ones(600))
    assert not asked


def test_a_search_learns_what_its_fits_spend(asked):
    search = GridSearchCV(DPKMeans(2, **BUDGET, domain=(0, 99)), {"n_clusters": [2, 3]}, cv=2)
    with pytest.warns(
        PrivacyWarning, match="fit 5 of this estimator and its clones: on the same rows, epsilon 25 and delta 5e-06"
    ):
        search.fit(matrix())
    assert len(asked) == 5


def searches(model):
    """Ways in which scikit-learn compares fits by their scores."""
    yield "grid", lambda X: GridSearchCV(model, {"n_clusters": [2, 3]}, cv=2).fit(X)
    yield "threads", lambda X: GridSearchCV(model, {"n_clusters": [2]}, cv=2, n_jobs=2).fit(X)
    yield "scorer", lambda X: GridSearchCV(model, {"n_clusters": [2]}, cv=2, scoring=lambda fit, X: 0.0).fit(X)
    yield "pipeline", lambda X: cross_val_score(make_pipeline(PrivateScaler((0, 99)), model), X, cv=2)
    yield "curve", lambda X: validation_curve(model, X, None, param_name="n_clusters", param_range=[2, 3], cv=2)


@pytest.mark.parametrize("case", range(5))
def test_a_search_under_a_ledger_is_refused_before_it_is_charged(asked, tmp_path, case):
    book = ledgers.new_ledger(tmp_path, ledgers.basic_limit(200.0, 1e-4), "people")
    model = DPKMeans(2, **BUDGET, domain=(0, 99), ledger=book.path, data_name="people")
    name, search = list(searches(model))[case]
    every_fit_failed = pytest.raises(ValueError, match=r"(?s)fits failed.*ledger isn't supported in a search")
    with parallel_backend("threading"), contextlib.nullcontext() if name == "curve" else every_fit_failed:
        assert np.isnan(search(matrix())).all()
    assert not asked
    assert ledgers.kinds(book) == ["limit"]


def test_a_choice_by_scores_warns_without_a_ledger():
    choice = pytest.warns(PrivacyWarning, match="settings chosen by them reveal more about the rows")
    model = DPKMeans(2, **BUDGET, domain=(0, 99))
    with choice:
        cross_val_score(model, matrix(), cv=2)
    model = DPKMeans(2, **BUDGET, domain=(0, 99)).fit(matrix())
    first, second = clone(model).fit(matrix()), clone(model).fit(matrix())
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        DPKMeans(2, **BUDGET, domain=(0, 99)).fit(matrix()).score(matrix())
        first.score(matrix())
        first.score(matrix(seed=1))
        second.predict(matrix())
    with choice:
        second.score(matrix())


def test_one_fit_is_no_warning_and_a_ledger_counts_for_itself(tmp_path):
    book = ledgers.new_ledger(tmp_path, ledgers.basic_limit(20.0, 1e-5), "people")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        DPKMeans(2, **BUDGET, domain=(0, 99)).fit(people())
        model = DPKMeans(2, **BUDGET, domain=(0, 99), ledger=book.path, data_name="people")
        model.fit(people()).fit(people())
    assert ledgers.kinds(book) == ["limit", *("reserve", "start", "commit") * 2]
    with pytest.warns(PrivacyWarning, match="epsilon 50 is high"):
        DPKMeans(2, epsilon=50.0, delta=1e-6, domain=(0, 99)).fit(people())


def overlapping(folder):
    rows = np.arange(400.0).reshape(200, 2)
    np.save(folder / "rows.npy", rows)
    (folder / "link.npy").hardlink_to(folder / "rows.npy")
    maps = [np.load(folder / name, mmap_mode="r") for name in ("rows.npy", "rows.npy", "link.npy")]
    yield maps[0], maps[1]
    yield maps[0], maps[2]
    yield maps[0], np.asarray(maps[1])[:20]
    yield maps[0], maps[0].view(np.matrix)[::2]
    table = pa.table({"age": rows[:, 0].copy(), "hours": rows[:, 1].copy()})
    yield table, table.slice(10, 50)
    yield table, table.select(["hours", "age"])


@pytest.mark.parametrize("case", range(6))
def test_shared_memory_is_found_behind_maps_views_and_tables(asked, tmp_path, case):
    rows, server = list(overlapping(tmp_path))[case]
    with pytest.raises(InputError, match="server_data must be public and not part of X"):
        DPKMeans(2, **BUDGET).fit(rows, server_data=server)


def test_a_column_called_client_is_no_client(asked, monkeypatch):
    rows = named(matrix(), "client", "hours")
    model = DPKMeans(2, **BUDGET, unit="client", client_rows=1, domain=(0, 99))
    model.fit(rows, groups=np.arange(len(rows)))
    assert asked[0].data.client_id == "client_"


@pytest.fixture(scope="module")
def fitted():
    """A run with bounds by column, and its rows."""
    rows = people(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return DPKMeans(2, **BUDGET, domain=DOMAIN).fit(rows), rows


def test_centers_come_back_in_the_units_of_the_columns(fitted):
    model, rows = fitted
    order = model.cluster_centers_[:, 0].argsort()
    np.testing.assert_allclose(model.cluster_centers_[order], CENTERS, atol=2.0)
    half_widths = np.array([36.5, 49.5])
    expected = np.linalg.norm((matrix(3000)[0] - model.cluster_centers_) / half_widths, axis=1)
    np.testing.assert_allclose(model.transform(rows)[0], expected, atol=1e-9)


def test_a_saved_model_is_loaded_as_it_was(fitted, tmp_path):
    model, rows = fitted
    model.save(tmp_path / "model")
    found = DPKMeans.load(tmp_path / "model")
    np.testing.assert_array_equal(found.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(found.transform(rows), model.transform(rows))
    assert found.feature_names_in_.tolist() == ["age", "hours"]
    assert (found.privacy_, found.algorithm_) == (model.privacy_, "dp_lloyd")
    assert json.loads((tmp_path / "model" / "privacy.json").read_text())["algorithm"] == "dp_lloyd"
    with pytest.raises(ConfigError, match="must be a new or empty folder"):
        model.save(tmp_path / "model")
    (tmp_path / "model" / "privacy.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"privacy\.json in .* was changed after the fit wrote it"):
        DPKMeans.load(tmp_path / "model")


def test_the_kept_state_holds_no_rows_and_no_number_of_them(fitted):
    model, rows = fitted
    kept = pickle.dumps(model)
    again = pickle.loads(kept)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    for value in (*matrix(3000)[0], *matrix(3000)[-1]):
        assert np.float64(value).tobytes() not in kept
    assert b"rows.parquet" not in kept
    assert b"/dapple-" not in kept
    assert b"num_rows" not in kept
    numbers = [each for each in vars(model).values() if isinstance(each, int) and not isinstance(each, bool)]
    assert len(rows) not in numbers
    assert "report.html" not in model._run.files


def test_a_ledger_holds_fits_to_a_limit(tmp_path):
    path, rows = str(tmp_path / "ledger.sqlite"), people()
    ledgers.new_ledger(tmp_path, ledgers.basic_limit(6.0, 1e-5), "people")
    model = DPKMeans(2, **BUDGET, domain=(0, 99), ledger=path, data_name="people").fit(rows)
    first = model.cluster_centers_
    with pytest.raises(BudgetExceededError, match="people"):
        model.fit(rows)
    np.testing.assert_array_equal(model.cluster_centers_, first)


@pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
def test_missing_values_are_filled_in_fit_predict_and_a_saved_model(tmp_path):
    rows = matrix(900)
    rows[::3, 1] = np.nan
    bounds = {"age": (0, 100), "hours": (0, 99)}
    model = DPKMeans(4, epsilon=50.0, delta=1e-6, domain=bounds, missing={"hours": {"fill": 45, "indicator": True}})
    model.fit(named(rows))
    order = np.lexsort(model.cluster_centers_[:, [0, 2]].T)
    np.testing.assert_allclose(model.cluster_centers_[order][:, 2], [0, 0, 1, 1], atol=0.1)
    labels = model.predict(named(rows))
    np.testing.assert_array_equal(model.cluster_centers_[labels][:, 2] > 0.5, np.isnan(rows[:, 1]))
    model.save(tmp_path / "model")
    found = DPKMeans.load(tmp_path / "model")
    np.testing.assert_array_equal(found.predict(named(rows)), labels)
    assert found.n_features_in_ == 2
    with pytest.raises(InputError, match="must be finite, got NaN or infinity in column 'age'"):
        model.predict(named(rows[:, ::-1]))
    with pytest.raises(
        ConfigError, match=r"^missing\.x1\.fill must be inside the bounds of its column, 0 to 99, got 100"
    ):
        DPKMeans(2, **BUDGET, domain=(0, 99), missing={1: 100}).fit(rows)
