"""`data.missing` and `data.csv` in every job that reads private rows: what a fit fills is filled everywhere else."""

import importlib
import io
import types

import numpy as np
import pyarrow as pa
import pytest
import yaml

from dapple_dp.integrations.model_handler import RowFeatures
from dapple_dp.pipelines.command.settings import fit as fit_settings
from dapple_dp.pipelines.command.words import WORDS
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.kmeans.plan.public_facts import learned_encoder, server_files
from dapple_dp.pipelines.kmeans.report import report_page
from dapple_dp.pipelines.reports.encode import _plan_encode
from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.pipelines.trusted_zone.pooled_fit import job_rows
from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.jobs.stream_config import load_stream_config
from dapple_dp.schemas.reports.config import load_encode_config
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import CsvConfig, CsvForm, DataConfig
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.files.formats.csv_file import CsvFile
from dapple_dp.transforms.files.saved_model import SavedModel

CSV = {"delimiter": ";", "decimal": ",", "null_values": ["NA"]}
TEXT = b"age;lab;person\n50,5;NA;1\n20;7,5;2\n"
MISSING = {"lab": {"fill": 5.0, "indicator": True}}
FILLED = [[50.5, 5.0, 1.0], [20.0, 7.5, 0.0]]
SCALED = pytest.approx(np.array([[0.01, 0.0, 1.0], [-0.6, 0.5, -1.0]]))
"""By bounds, from -1 to 1."""
BOUNDS = {"age": [0, 100], "lab": [0, 10]}
SERVER = "age;lab\n" + "".join(f"{10 + 8 * row};{row}\n" for row in range(10))


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "rows.csv").write_bytes(TEXT)
    (tmp_path / "server.csv").write_text(SERVER)
    return tmp_path


def data_of(lake, **more):
    return {"path": str(lake / "lake"), "features": ["age", "lab"], "csv": CSV, "missing": MISSING} | more


def read(contract, source):
    """The rows of the CSV file through the form and the contract of a job."""
    file = CsvFile(io.BytesIO(TEXT), "rows.csv", CsvForm.of_text(source.csv))
    return contract.to_points(pa.concat_tables(list(file.tables(contract.types))), "rows.csv")


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("trust", ["central", "masked"])
def test_a_fit_and_its_masked_roles_fill(lake, unit, trust):
    """A party's job is such a fit, too."""
    settings = {"algorithm": "dp_lloyd", "data": data_of(lake), "n_clusters": 2, "dp_lloyd": {"domain": BOUNDS}}
    settings["privacy"] = {"unit": unit, "epsilon": 1.0, "delta": 1e-6}
    if unit == "client":
        settings["data"] |= {"client_id": "person"}
        settings["clipping"] = {"client_rows": 2}
    if trust == "masked":
        (lake / "secret").write_bytes(bytes(range(32)))
        settings |= {"trust": "masked", "masked": {"secret_uri": str(lake / "secret")}}
    planned = plan_files(validated(settings))
    found = planned.contract
    if unit == "client":
        found = found.features_only()
    assert read(found, planned.source) == SCALED
    assert planned.contract.n_features == 3


def test_reports_fill(lake):
    example = yaml.safe_load(WORDS["encode"].example)
    bounds = {name: {"kind": "bounds", "lower": low, "upper": high} for name, (low, high) in BOUNDS.items()}
    example |= {"data": data_of(lake, client_id="person"), "encode": bounds}
    planned = _plan_encode(load_encode_config(yaml.safe_dump(example)))
    found = read(planned.rows.contract.features_only(), planned.rows.source)
    assert found == pytest.approx(np.array([[0.505, 0.5, 1.0], [0.2, 0.75, 0.0]]))


def test_fits_without_privacy_fill(lake):
    settings = {
        "algorithm": "optimal",
        "data": data_of(lake, client_id="person"),
        "n_clusters": 2,
    }
    planned = job_rows(fit_settings(yaml.safe_dump(settings)))
    assert read(planned.contract.features_only(), planned.source).tolist() == FILLED


def test_windows_of_a_stream_fill(lake):
    """The fit of a window has the section of the stream, and learns what a fit learns."""
    settings = yaml.safe_load(WORDS["stream"].example) | {"dp_lloyd": {"domain": BOUNDS}}
    settings["data"] = data_of(lake, name="visits")
    settings.pop("clipping")
    window = load_stream_config(yaml.safe_dump(settings)).window(0, str(lake / "out"))
    encoder = learned_encoder(window.data, window.encodings, server_files(window.server_data, window.data))
    contract = TableContract.from_config(window.data, n_features=3, by_client=False, encoder=encoder)
    assert read(contract, types.SimpleNamespace(csv=window.data.csv_form.text)) == SCALED


def _model():
    sections = DataConfig(path="x", features=["age", "lab"], missing=MISSING).missing
    encoder = Encoder.learn(("age", "lab"), {}, missing=sections)
    centers = np.array([[20.0, 7.0, 0.0], [50.0, 5.0, 1.0]])
    return SavedModel(
        folder="model", centers=centers, feature_names=encoder.names, encoder=encoder, digest="", sizes=None
    )


@pytest.mark.parametrize("job", ["assign", "evaluate", "profile"])
def test_jobs_on_a_model_fill_as_its_fit_did(lake, job):
    """They may repeat the section, and may not change it."""
    data = DataConfig(**data_of(lake))
    for given in (data, data.model_copy(update={"missing": {}})):
        contract = _model().contract(given)
        assert read(contract, types.SimpleNamespace(csv=given.csv_form.text)).tolist() == FILLED
    other = DataConfig(**data_of(lake, missing={"lab": {"fill": 6.0, "indicator": True}}))
    with pytest.raises(ConfigError, match=r"data\.missing must be the same as in the fit at model"):
        _model().contract(other)


def test_the_handler_of_beam_fills():
    """None, NaN and a column that a row lacks are missing; text and infinity are not."""
    handler = RowFeatures.of(_model())
    rows = [{"age": 50.5, "lab": None}, {"age": 20.0, "lab": 7.5}, {"age": 1.0, "lab": float("nan")}, {"age": 2.0}]
    points, valid = handler.points(rows, InvalidRows.FAIL)
    assert points.tolist() == [*FILLED, [1.0, 5.0, 1.0], [2.0, 5.0, 1.0]]
    assert valid.all()
    bad = [{"age": 1.0, "lab": "x"}, {"age": 1.0, "lab": float("inf")}, {"age": None, "lab": 1.0}]
    assert not handler.points(bad, InvalidRows.DROP)[1].any()
    with pytest.raises(InputError, match="lab"):
        handler.points(bad[:1], InvalidRows.FAIL)


def _loaded(name, lake):
    """The example of a word, with the rows of this file."""
    settings = yaml.safe_load(WORDS[name].example)
    settings["data"] |= {"path": str(lake / "lake"), "csv": CSV}
    module, _, load = WORDS[name].load.partition(":")
    return getattr(importlib.import_module(module), load)(yaml.safe_dump(settings))


@pytest.mark.parametrize("name", [name for name, word in WORDS.items() if "data" in yaml.safe_load(word.example)])
def test_every_job_reads_rows_by_its_own_form(name, lake):
    """All of them take their private files from one function, with the form of the job."""
    job = _loaded(name, lake)
    if name == "stream":
        job = job.window(0, str(lake / "out"))
    elif name == "sweep":
        job = job.cells[0].config
    assert CsvForm.of_text(private_source(job).csv) == CsvForm.of(CsvConfig(**CSV))


@pytest.mark.parametrize(
    ("rows", "missing", "said"),
    [
        ("fail", {}, ""),
        ("fail", MISSING, ""),
        ("drop", {}, "Rows with a missing or infinite value are left out of this run, and their share is unknown. "),
        (
            "drop",
            MISSING,
            "Rows with a missing or infinite value are left out of this run, and their share is unknown. ",
        ),
        (
            "drop",
            {name: {"fill": 5.0} for name in BOUNDS},
            "Rows with an infinite value are left out of this run, and their share is unknown. ",
        ),
    ],
)
def test_the_first_line_of_a_page_says_which_rows_are_left_out(rows, missing, said):
    data = DataConfig(path="x", features=["age", "lab"], on_invalid_rows=rows, missing=missing)
    view = types.SimpleNamespace(planned=types.SimpleNamespace(config=types.SimpleNamespace(data=data)))
    assert report_page._left_out(view) == said
