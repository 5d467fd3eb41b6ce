"""Errors of the estimator name its own parameters, and name the column."""

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp import BudgetExceededError, ConfigError, DPKMeans, InputError, PrivateScaler
from dapple_dp.integrations.model_handler import DappleModelHandler
from dapple_dp.integrations.table_out import read_rows
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes.ledgers import new_ledger

ROWS = np.random.default_rng(0).random((200, 2))
SECRET = 0.123456789


class Frame:
    """Rows with names, as pandas and Polars give them to others."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __array__(self, dtype=None, copy=None):
        return np.array([list(row) for row in zip(*self._columns.values(), strict=True)], dtype=dtype)


def frame(**more):
    return Frame({"age": ROWS[:, 0], "hours": ROWS[:, 1], **more})


def model(**parameters):
    return DPKMeans(2, **{"epsilon": 8.0, "delta": 1e-6, "domain": (0, 1), **parameters})


@pytest.mark.parametrize("algorithm", ["kmeans", "KMeans", "DP_LLOYD", "dp-lloyd", "", None, 3, ["auto"]])
@pytest.mark.parametrize("bounds", [{}, {"domain": None}, {"domain": None, "clipping_norm": 1.0}])
def test_an_unknown_algorithm_is_answered_by_their_names(algorithm, bounds):
    with pytest.raises(ConfigError, match=r"^algorithm must be") as error:
        model(algorithm=algorithm, **bounds).fit(ROWS)
    assert all(f"'{each}'" in str(error.value) for each in Algorithm)


@pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
def test_save_and_load_name_their_folder(tmp_path):
    fitted = model().fit(ROWS)
    fitted.save(tmp_path / "model")
    (tmp_path / "file").touch()
    for place in ("model", "file/model"):
        with pytest.raises(ConfigError, match=r"^folder (must be a new|.* could not be created)"):
            fitted.save(tmp_path / place)
    with pytest.raises(ConfigError, match=r"^folder must be the output folder of a finished fit") as error:
        DPKMeans.load(tmp_path / "nowhere")
    assert "recurring" not in str(error.value)


class BytesPath:
    """A path whose text is bytes."""

    def __fspath__(self):
        return b"model"


@pytest.mark.parametrize("place", ["", None, 7, b"model", BytesPath(), "a\udcff"])
def test_what_is_no_path_is_refused_before_anything_is_read_or_written(place):
    for call in (DPKMeans.load, DappleModelHandler, read_rows):
        with pytest.raises(ConfigError, match=r"must be (a path|text in UTF-8), got"):
            call(place)


@pytest.mark.parametrize("domain", [{"age": (0, 1)}, [(0, 1)], {"age": (0, 1), "hours": (0, 1), "z": (0, 1)}])
def test_bounds_of_other_columns_are_reported_as_bounds_of_x(domain):
    table = pa.table(dict(zip(("age", "hours"), ROWS.T, strict=True)))
    with pytest.raises(ConfigError, match="each column of X and no other") as error:
        model(domain=domain).fit(table)
    assert "data.features" not in str(error.value)


@pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
def test_the_refusal_of_a_ledger_names_parameters(tmp_path):
    new_ledger(tmp_path, Limit(epsilon=1.0, delta=1e-5))
    with pytest.raises(BudgetExceededError, match=r"so lower epsilon or raise the limit") as error:
        model(ledger=str(tmp_path / "ledger.sqlite"), data_name="census").fit(ROWS)
    assert "privacy.epsilon" not in str(error.value)


SETTINGS = re.compile(
    r"\b(?:privacy|clipping|data|tree|recurring|masked|server_data|lloyd|dp_lloyd)\.\w+|--\w+|\bsection\b|encode|below\."
)


@pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
def test_warnings_name_parameters_and_no_page():
    rows = np.random.default_rng(0).normal(0.0, [1.0, 1.0, 5000.0], (3000, 3))
    clipped = DPKMeans(3, epsilon=8.0, delta=1e-6, clipping_norm=1.0).fit(rows, server_data=rows[::7].copy())
    wide = DPKMeans(3, epsilon=8.0, delta=1e-6).fit(rows, server_data=rows[::7].copy())
    drowned = DPKMeans(4, epsilon=0.1, delta=1e-6, domain=(-1e5, 1e5)).fit(rows)
    told = [*clipped.warnings_, *wide.warnings_, *drowned.warnings_]
    assert any("A larger clipping_norm adds noise" in each for each in told)
    assert any("by bounds of its own for each column" in each for each in told)
    assert any("has a noisy size below" in each or "have noisy sizes below" in each for each in told)
    assert not [each for each in told if SETTINGS.search(each)]


def test_a_stream_is_no_fit():
    with pytest.raises(ConfigError, match=r"^algorithm no longer accepts windows; use `dapple stream`"):
        model(algorithm="windows").fit(ROWS)


def test_a_choice_of_clusters_is_a_mapping_here():
    for wrong in ({"max": 5}, 3.5):
        with pytest.raises(ConfigError, match="a mapping of max and choose"):
            DPKMeans(wrong, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(ROWS)


class Column:
    """A column of pandas: no matrix, and no table either."""

    iloc, dtypes = None, np.dtype(float)

    def __array__(self, dtype=None, copy=None):
        return np.array([0.5, 0.25], dtype=dtype)

    def items(self):
        return iter([(0, 0.5), (1, 0.25)])


def test_the_message_on_a_single_column_gives_its_shape():
    with pytest.raises(InputError, match=r"X must be a matrix, got shape \(2,\)"):
        model().fit(Column())


BROKEN = np.where(np.arange(200) == 17, np.nan, SECRET)


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        (frame(income=BROKEN), "column 'income'"),
        (pa.table({"age": ROWS[:, 0], "income": BROKEN}), "column 'income'"),
        (pa.table({"age": ROWS[:, 0], "income": pa.array(BROKEN, from_pandas=True)}), "column 'income'"),
        (np.column_stack([ROWS, BROKEN]), "column 2, counted from 0"),
        (np.column_stack([ROWS, np.where(BROKEN == SECRET, SECRET, -np.inf)]), "column 2, counted from 0"),
    ],
)
def test_a_column_with_nan_is_named_and_not_quoted(rows, where):
    for each in (model(), PrivateScaler(bounds=(0, 1))):
        with pytest.raises(InputError, match=f"X must be finite, got NaN or infinity in {re.escape(where)};") as error:
            each.fit_transform(rows)
        assert str(SECRET) not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "where", "fills"),
    [
        (pa.table({"age": BROKEN, "income": BROKEN}), "columns 'age', 'income'", "missing={'age': NUMBER, ...}"),
        (
            pa.table({f"v{place}": BROKEN for place in range(7)}),
            "columns 'v0', 'v1', 'v2', 'v3', 'v4' and 2 more",
            "of each: missing={'v0': NUMBER, ...}",
        ),
        (np.column_stack([BROKEN, ROWS, BROKEN]), "columns 0, 3, counted from 0", "missing={0: NUMBER, ...}"),
        (
            pa.table({"a": BROKEN, "b": np.where(BROKEN == SECRET, SECRET, np.inf)}),
            "columns 'a', 'b'",
            "or fill them in",
        ),
    ],
)
def test_all_columns_with_nan_are_named_at_once(rows, where, fills):
    with pytest.raises(InputError, match=f"X must be finite, got NaN or infinity in {re.escape(where)};") as error:
        model().fit(rows)
    assert fills in str(error.value)
    assert str(SECRET) not in str(error.value)
    assert "200" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "column"), [(pa.table({"income": BROKEN}), "'income'"), (np.column_stack([ROWS, BROKEN]), "2")]
)
def test_who_has_nan_is_told_how_to_keep_such_rows(rows, column):
    """The message names the parameter, in a fit; it fills no infinity, and a scaler has none."""
    with pytest.raises(InputError, match=re.escape(f"missing={{{column}: NUMBER}}")):
        model().fit(rows)
    infinite = np.where(np.isnan(BROKEN), np.inf, BROKEN)
    for each, given in ((model(), np.column_stack([ROWS, infinite])), (PrivateScaler(bounds=(0, 1)), rows)):
        with pytest.raises(InputError, match="; drop such rows, or fill them in") as error:
            each.fit(given)
        assert "missing=" not in str(error.value)


@pytest.mark.parametrize("column", [["Rome", "Oslo"] * 100, [b"x"] * 200, np.full(200, "1,5")])
def test_a_column_of_words_is_named_and_not_quoted(column):
    with pytest.raises(InputError, match="X must hold numbers only, got others in column 'city';") as error:
        model().fit(frame(city=column))
    assert not any(word in str(error.value) for word in ("Rome", "Oslo", "1,5"))


def test_a_column_of_other_things_is_named():
    with pytest.raises(TypeError, match="in column 'day'; argument must be a string or a real number"):
        model().fit(frame(day=[object()] * 200))


def test_a_name_with_a_star_is_refused_by_the_name():
    with pytest.raises(InputError, match=r"X must have column names without '\*', got 'a\*';"):
        model().fit(pa.table({"a*": ROWS[:, 0], "b": ROWS[:, 1]}))


FIRST = """
import logging
import numpy as np
from dapple_dp import DPKMeans
rows = np.random.default_rng(0).normal([[0.2], [0.8]], 0.02, (2, 20_000)).reshape(-1, 2)
assert logging.getLogger().handlers == logging.getLogger().filters == []
DPKMeans(2, epsilon=8.0, delta=1e-6, domain=(0, 1)).fit(rows)
logging.warning("the program's own")
"""


def test_the_first_fit_of_a_process_says_nothing_of_beam():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "WARNING:root:the program's own\n")


def test_handlers_of_the_program_stay_and_hear_the_rest():
    code = (
        "import logging, sys; logging.basicConfig(stream=sys.stdout, format='mine %(message)s')\n"
        "from dapple_dp.schemas import quiet_imports\n"
        "with quiet_imports.without_gaps():\n"
        "    logging.warning('apitools not found, and so on')\n"
        "    logging.warning('something else')\n"
        "logging.warning('apitools not found, said by the program')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("mine something else\nmine apitools not found, said by the program\n", "")
