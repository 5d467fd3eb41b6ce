"""`DPKMeans`: scikit-learn's conventions, and the very rounds of the `fit` job behind them."""

import importlib.abc
import os
import pickle
import re
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from dapple_dp.api import DPKMeans
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, InputError

pytestmark = pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
CENTERS = np.array([[6.0, 0.0, 0.0], [-6.0, 0.0, 3.0], [0.0, 8.0, 0.0]])
NO_LABELS = "labels of the training rows are private, so that there is no labels_"
FRESH_NOISE = "fresh noise is drawn in every fit, so that two fits differ"
EXPECTED_FAILURES = {"check_clustering": NO_LABELS, "check_fit_idempotent": FRESH_NOISE}


@parametrize_with_checks(
    [DPKMeans(2, epsilon=10.0, delta=1e-5, clipping_norm=10.0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
@pytest.mark.slow
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def mixture(n_rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows around `CENTERS` and the center of each."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CENTERS), n_rows)
    return CENTERS[labels] + rng.normal(size=(n_rows, 3)) * 0.2, labels


def matched_error(estimator: DPKMeans) -> float:
    """Largest distance from a true center to the nearest one found."""
    gaps = np.linalg.norm(CENTERS[:, None] - estimator.cluster_centers_[None], axis=2)
    assert len(set(gaps.argmin(axis=1).tolist())) == len(CENTERS)
    return float(gaps.min(axis=1).max())


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Folder in which temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def model(**parameters) -> DPKMeans:
    return DPKMeans(3, **({"epsilon": 10.0, "delta": 1e-6, "clipping_norm": 12.0} | parameters))


def test_an_easy_mixture_is_found_and_two_fits_differ(temporary):
    points, labels = mixture()
    estimator = model()
    assert estimator.fit(points) is estimator
    assert matched_error(estimator) < 0.2
    assert estimator.noisy_sizes_.shape == (3,)
    assert is_valid_linkage(estimator.tree_, throw=True)
    assert estimator.tree_sizes_.shape == (2,)
    assert estimator.tree_sizes_[-1] == pytest.approx(estimator.noisy_sizes_.sum())
    assert abs(estimator.noisy_sizes_.sum() - len(points)) < 100
    assert not hasattr(estimator, "labels_")
    found = estimator.predict(points)
    assert all(len(set(found[labels == center].tolist())) == 1 for center in range(3))
    assert list(temporary.iterdir()) == []
    first = estimator.cluster_centers_
    assert not np.array_equal(first, estimator.fit(points).cluster_centers_)


def test_spending_and_releases_are_shown():
    estimator = model(algorithm="feddp_kmeans", epsilon=3.0, lloyd_steps=1, public_rows=3000).fit(mixture()[0])
    assert 2.9 < estimator.privacy_.epsilon <= 3.0
    assert estimator.privacy_.delta == 1e-6
    assert estimator.privacy_.unit is PrivacyUnit.RECORD
    paths = [release.path for release in estimator.releases_]
    assert paths == [event["path"] for event in estimator.privacy_.events]
    assert paths[-1] == "feddp_kmeans/lloyd_00/counts"
    assert "feddp_kmeans/outer_product/rows" not in paths


@pytest.mark.parametrize("clipping_norm", ["server_radius", 12.0])
def test_server_data_give_radius_center_and_prior(clipping_norm):
    points, _ = mixture()
    offset = np.array([100.0, -50.0, 7.0])
    estimator = model(epsilon=2.0, clipping_norm=clipping_norm)
    estimator.fit(points + offset, server_data=(mixture(200, seed=1)[0] + offset).tolist())
    estimator.cluster_centers_ = estimator.cluster_centers_ - offset
    assert matched_error(estimator) < 0.3


def test_fit_predict_is_fit_and_predict():
    points, labels = mixture()
    estimator = model()
    found = estimator.fit_predict(points, server_data=mixture(50, seed=1)[0])
    np.testing.assert_array_equal(found, estimator.predict(points))
    assert len(set(zip(found.tolist(), labels.tolist(), strict=True))) == 3


def test_a_fit_writes_no_file():
    """Not even one that is gone again: the process that fits cannot open any for writing."""
    script = f"""
import sys
import numpy as np
from dapple_dp import DPKMeans

rows = np.random.default_rng(0).normal(size=(300, 2))
model = DPKMeans(2, epsilon=4.0, delta=1e-6, domain=(-5, 5)).fit(rows)

def hook(event, given):
    made = event in ("os.mkdir", "os.rename", "tempfile.mkdtemp", "tempfile.mkstemp")
    if made or (event == "open" and isinstance(given[2], int) and given[2] & {os.O_WRONLY | os.O_RDWR | os.O_CREAT}):
        raise SystemExit(f"{{event}} {{given}}")

sys.addaudithook(hook)
model.fit(rows)
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_fit_loads_no_beam(tmp_path):
    script = """
import sys
import numpy as np
from dapple_dp import DPKMeans, DPTopics

rows, given = np.random.default_rng(0).normal(size=(300, 2)), {"epsilon": 4.0, "delta": 1e-6}
model = DPKMeans(2, **given, domain=(-5, 5)).fit(rows)
asked = ("estimator.notebook", "estimator.clusters_display", "pipelines.plan")
asked += ("estimator.run_files", "pipelines.kmeans.report.report_page", "pipelines.ledger.store")
print([name for name in asked if f"dapple_dp.{name}" in sys.modules])
model.save(sys.argv[1])
model.plan(300, [1.0]), model.report()._repr_html_(), model.privacy_._repr_html_()
DPKMeans(2, **given, domain=(-5, 5), unit="client", client_rows=3).fit(rows, groups=np.arange(300) // 3)
DPKMeans(2, **given).fit(rows, server_data=rows[:90] + 0.1)
DPKMeans(2, **given, clipping_norm=5.0, settings={"quality": {}}).fit(rows)
DPTopics(2, **given, unit="record", reason="each row is of another person").fit(rows)
print([name for name in sys.modules if name.partition(".")[0] == "apache_beam"])
"""
    words = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "model")]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n[]\n"


def test_a_first_fit_leaves_the_collector_as_it_is():
    """What the program drops in the meantime is collected later, and so is what it drops between later fits."""
    script = """
import gc
import numpy as np

class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("collected")

def state():
    return gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()

Cycle()
before = state()
from dapple_dp import DPKMeans
print(state() == before)
DPKMeans(2, epsilon=4.0, delta=1e-6, domain=(-5, 5)).fit(np.zeros((300, 2)))
print(state() == before)
gc.collect()

class Dropped(Cycle):
    left = 0
    def __init__(self):
        super().__init__()
        Dropped.left += 1
    def __del__(self):
        Dropped.left -= 1

for _ in range(60):
    Dropped()
    DPKMeans(2, epsilon=4.0, delta=1e-6, domain=(-5, 5)).fit(np.zeros((300, 2)))
print(Dropped.left < 50)
gc.disable()
from dapple_dp import DPTopics
print(gc.isenabled())
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert sorted(found.stdout.split()) == ["False", "True", "True", "True", "collected"]


def test_the_collector_is_on_after_an_import_that_fails_and_after_fits_at_once():
    script = """
import gc, sys, threading
import numpy as np
import dapple_dp

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "apache_beam":
            raise ModuleNotFoundError("No module named 'apache_beam'", name="apache_beam")

def fit(seed):
    rows = np.random.default_rng(seed).random((300, 2))
    found.append(dapple_dp.DPKMeans(2, epsilon=4.0, delta=1e-6, domain=(0, 1)).fit(rows).cluster_centers_.shape)

before, found = gc.get_threshold(), []
sys.meta_path.insert(0, Without())
try:
    dapple_dp.assign
except ModuleNotFoundError:
    print(gc.isenabled())
threads = [threading.Thread(target=fit, args=(seed,)) for seed in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(found), gc.isenabled(), gc.get_threshold() == before, gc.get_freeze_count())
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n6 True True 0\n"


def test_a_size_says_how_much_of_a_client_it_counts(tmp_path):
    """A client all of whose rows are in one cluster counts with at most the bound, less if its sums are shortened."""
    estimator = model(unit="client", client_rows=10, clipping_norm="server_radius", epsilon=1e3)
    rows = np.repeat(mixture(600)[0], 10, axis=0)
    estimator.fit(rows, groups=np.repeat(np.arange(600), 10), server_data=mixture(200, seed=1)[0])
    estimator.report().save(tmp_path / "report.html")
    (most,) = re.findall(r"In each size .* weight of at most (0\.\d\d), so", (tmp_path / "report.html").read_text())
    assert 0.8 < estimator.noisy_sizes_.sum() / (600 * float(most)) < 1.02
    # A client with rows in many clusters may count with more in all of them together, but not in one.
    estimator.fit(mixture(6000)[0], groups=np.arange(6000) % 600, server_data=mixture(200, seed=1)[0])
    assert estimator.noisy_sizes_.max() < 600 * float(most) < estimator.noisy_sizes_.sum()


def test_groups_make_the_client_the_privacy_unit():
    points, _ = mixture(6000)
    groups = np.repeat(np.arange(600), 10)
    estimator = model(unit="client", client_rows=10, clipping_norm="server_radius")
    estimator.fit(points, groups=groups[::-1], server_data=mixture(200, seed=1)[0])
    assert estimator.privacy_.unit is PrivacyUnit.CLIENT
    assert matched_error(estimator) < 0.5


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        (None, "groups is required for unit 'client'"),
        (np.arange(9), "for every row of X, got 9 ids for 10 rows"),
        (np.arange(10.0), "groups must hold integers, strings or bytes, got double"),
        (np.arange(20).reshape(10, 2), "groups must be a vector"),
        (["secret", None] * 5, "for every row of X, got nulls"),
        (np.array(["secret", 1] * 5, dtype=object), "groups must be a vector of integers, of strings or of bytes"),
    ],
)
def test_groups_that_name_no_clients_are_refused(groups, rule):
    with pytest.raises(InputError, match=rule) as refused:
        model(unit="client", client_rows=5).fit(np.zeros((10, 2)), groups=groups)
    assert "secret" not in str(refused.value)


def test_groups_are_refused_where_they_would_protect_nobody():
    with pytest.raises(InputError, match="groups isn't supported for unit 'record'; set unit to 'client'"):
        model().fit(np.zeros((10, 2)), groups=np.arange(10))


@pytest.mark.parametrize(
    ("X", "rule"),
    [
        (np.array([42.5, 43.5]), r"X must be a matrix, got shape \(2,\)"),
        (np.full((2, 2, 2), 42.5), r"X must be a matrix, got shape \(2, 2, 2\)"),
        (np.full((2, 2), 42.5 + 1j), "X must be real, got dtype complex128"),
        ([["42.5", "secret"]], "X must hold numbers only"),
        ([[42.5, np.nan]], "NaN"),
        (np.zeros((0, 2)), "0 sample"),
    ],
)
def test_rows_that_are_no_finite_matrix_are_refused_without_a_value(X, rule):
    with pytest.raises(ValueError, match=rule) as refused:
        model().fit(X)
    assert "42.5" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_server_data_of_another_width_are_refused():
    with pytest.raises(InputError, match="server_data must have the 3 features of X, got 2"):
        model().fit(np.zeros((10, 3)), server_data=np.zeros((10, 2)))


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"epsilon": 0.0}, "^epsilon must be"),
        ({"delta": 1.0}, "^delta must be"),
        ({"unit": "row"}, "^unit must be"),
        ({"allocation": "best"}, "^allocation must be"),
        ({"center": "median"}, "^center must be"),
        ({"lloyd_steps": -1}, "^lloyd_steps must be"),
        ({"public_rows": 0}, "^public_rows must be"),
        ({"clipping_norm": -1.0}, "^clipping_norm must be"),
        (
            {"clipping_norm": "server_radius"},
            "^clipping_norm must be a number or private without server_data",
        ),
        ({"unit": "client"}, "^client_rows is required for unit 'client'"),
        ({"n_clusters": 0}, "^n_clusters must be"),
        ({"random_state": -1}, "^random_state must be"),
        ({"random_state": np.random.default_rng(0)}, "^random_state must be"),
        ({"clipping_norm": None}, "^clipping_norm or domain is required without server_data"),
        ({"algorithm": "dp_lloyd", "clipping_norm": None}, "^clipping_norm or domain is required"),
        ({"algorithm": "dp_lloyd", "clipping_norm": "private"}, "^domain is required for algorithm 'dp_lloyd'"),
        ({"algorithm": "central_tree", "domain": (0, 1)}, "^domain isn't supported for algorithm 'central_tree'"),
        ({"algorithm": "optimal"}, "^algorithm must be 'auto', 'feddp_kmeans'"),
        ({"domain": (1, 0)}, "^domain must be two finite numbers"),
        ({"domain": {"a": (0, 1)}}, r"^domain must be a list of \(lower"),
        ({"settings": {"privacy": {"epsilon": 100.0}}}, "^settings must be a mapping with sections .* got 'privacy'"),
        ({"settings": [1]}, "^settings must be a mapping"),
        ({"ledger": "nowhere.sqlite"}, "^data_name is required with a ledger"),
    ],
)
def test_parameters_are_checked_by_fit_in_their_own_names(parameters, rule):
    estimator = model().set_params(**parameters)
    with pytest.raises(ConfigError, match=rule):
        estimator.fit(np.zeros((10, 2)))


def test_more_clusters_than_server_rows_are_refused():
    with pytest.raises(ConfigError, match="n_clusters must be at most the number of server rows"):
        model().fit(np.zeros((10, 2)), server_data=np.eye(2))


@pytest.mark.parametrize("missing", ["epsilon", "delta"])
def test_what_decides_the_guarantee_has_no_default(missing):
    given = {"epsilon": 1.0, "delta": 1e-6}
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        DPKMeans(3, **given)


def test_parameters_are_stored_as_they_are_and_cloned():
    given = {"n_clusters": 4, "epsilon": 0.5, "delta": 1e-7, "clipping_norm": 2.0, "unit": "client", "client_rows": 9}
    given |= {"allocation": "paper", "center": "none", "lloyd_steps": 2, "public_rows": 10**6, "random_state": 3}
    given |= {"algorithm": "feddp_kmeans", "domain": None, "settings": None, "ledger": "l", "data_name": "d"}
    given |= {"missing": None, "verbose": 1}
    estimator = DPKMeans(**given)
    assert estimator.get_params() == given
    assert clone(estimator).get_params() == given
    assert pickle.loads(pickle.dumps(estimator)).get_params() == given


class _NotInstalled(importlib.abc.MetaPathFinder):
    """Nobody finds pandas."""

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)


def test_pandas_is_not_needed(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_NotInstalled(), *sys.meta_path])
    assert model(unit="client", client_rows=1).fit(np.eye(4), groups=["a", "b", "a", "c"]).algorithm_ == "dp_lloyd"


@pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
def test_rows_far_from_zero_and_huge_ones_get_the_nearest_center():
    rng, offset = np.random.default_rng(0), 1e9
    rows = offset + np.array([[0, 0], [8, 0], [0, 8.0]])[rng.integers(0, 3, 900)] + rng.normal(0, 0.3, (900, 2))
    found = model(epsilon=50.0, clipping_norm=None, domain=(offset - 2, offset + 10)).fit(rows)
    distances = np.linalg.norm(rows[:, None] - found.cluster_centers_, axis=2)
    np.testing.assert_array_equal(found.predict(rows), distances.argmin(axis=1))
    np.testing.assert_allclose(found.transform(rows), distances, rtol=1e-9)
    assert found.score(rows) == pytest.approx(-(distances.min(axis=1) ** 2).sum(), rel=1e-6)
    along = found.cluster_centers_ @ [1.0, -1.0]
    for kind, large in ((np.float32, 1e20), (np.float64, 1e300)):
        assert found.predict(np.array([[large, -large], [-large, large]], kind)).tolist() == [
            along.argmax(),
            along.argmin(),
        ]
    assert np.isfinite(found.transform(np.full((1, 2), 1e300))).all()
    assert found.score(np.full((1, 2), 1e300)) == -np.inf


def test_weights_are_refused_in_a_sentence():
    with pytest.raises(TypeError, match="fit has no sample_weight: every row counts once"):
        model().fit(np.zeros((10, 2)), sample_weight=np.ones(10))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        model().fit(np.zeros((10, 2)), weight=np.ones(10))
