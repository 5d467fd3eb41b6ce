import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import OneHot, PublicSource, QuantileBins, Standardize
from dapple_dp.transforms.files.saved_model import load_model, read_reference
from tests.scenes.models import write_model

CENTERS = np.array([[1.0, 2.0], [3.0, 4.0]])


def data(features):
    return DataConfig(path="lake", features=features)


def encoder():
    server = pa.table(
        {"age": [20.0, 0.1, 40.0], "flag": [True, False, True], "code": [7, 8, 7], "city": ["a", "b", "a"]}
    )
    encodings = {
        "age": QuantileBins(bins=3, weight=0.5),
        "flag": OneHot(vocabulary=PublicSource.SERVER),
        "code": OneHot(vocabulary=(7, 9)),
        "city": OneHot(vocabulary=PublicSource.SERVER),
        "hours": Standardize(mean=40.0, stddev=12.0),
    }
    features = ("age", "flag", "code", "city", "hours", "plain")
    return Encoder.learn(
        features, encodings, server.append_column("hours", [[1, 2, 3]]).append_column("plain", [[1, 2, 3]])
    )


def test_an_encoder_comes_back_from_json():
    assert Encoder.from_json(json.loads(json.dumps(encoder().to_json()))) == encoder()


def test_other_parameters_are_refused():
    with pytest.raises(InputError, match="an encoding must be one that fit wrote"):
        Encoder.from_json([{"column": "age", "power": 2.0}])


def test_a_model_of_vectors(tmp_path):
    model = load_model(write_model(tmp_path / "fit", CENTERS) + "/")
    np.testing.assert_array_equal(model.centers, CENTERS)
    contract = model.contract(data("x"))
    assert (contract.feature_list, contract.n_features, contract.by_client) == ("x", 2, False)


def test_a_model_of_encoded_columns(tmp_path):
    names = list(encoder().names)
    folder = write_model(tmp_path / "fit", np.ones((2, len(names))), names, encoder().to_json())
    features = [column.column for column in encoder().columns]
    contract = load_model(folder).contract(data(features))
    assert contract.encoder == encoder()
    assert contract.n_features == len(names)
    with pytest.raises(ConfigError, match=r"got 'flag' in place of 'age'; use the fit's data\.features"):
        load_model(folder).contract(data([features[1], features[0], *features[2:]]))
    with pytest.raises(ConfigError, match=r"must be the 6 features of .* got 11; name the columns"):
        load_model(folder).contract(data(names))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("run.json", None, "model must be the output folder of a finished fit, with run.json and centers.parquet"),
        ("centers.parquet", None, "model must be the output folder of a finished fit"),
        ("run.json", b"{", "model must be the output folder of a finished fit"),
        ("run.json", b'{"run_id": "a"}', "model must be the output folder of a finished fit"),
        ("centers.parquet", b"other", "centers.parquet in .* was changed after the fit wrote it; fit again"),
    ],
)
def test_a_folder_without_a_fit_is_refused(tmp_path, name, content, sentence):
    folder = write_model(tmp_path / "fit", CENTERS)
    (tmp_path / "fit" / name).unlink()
    if content is not None:
        (tmp_path / "fit" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        load_model(folder)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("encoding", [{"column": "a"}], "run.json in .* must be the file that fit wrote, got another encoding"),
        ("encoding", {"a": 1}, "run.json in .* must be the file that fit wrote, got unexpected"),
        ("features", ["a"], "run.json in .* list the features of its centers"),
        ("features", None, "run.json in .* must be the file that fit wrote, got unexpected"),
    ],
)
def test_a_manifest_that_contradicts_the_centers_is_refused(tmp_path, key, value, sentence):
    folder = write_model(tmp_path / "fit", CENTERS)
    path = tmp_path / "fit" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ConfigError, match=sentence):
        load_model(folder)


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_a_manifest_of_another_format_is_refused(tmp_path, number):
    folder = write_model(tmp_path / "fit", CENTERS)
    path = tmp_path / "fit" / "run.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"format": number}))
    rule = r"^model must .*, got .* instead of format 1; read it with the version of dapple that wrote it, or"
    with pytest.raises(ConfigError, match=rule):
        load_model(folder)
    path.write_text(json.dumps({name: value for name, value in content.items() if name != "format"}))
    with pytest.raises(ConfigError, match=r"^model must .*, got no format number instead of format 1; "):
        load_model(folder)


def test_references(tmp_path):
    folder = write_model(tmp_path / "fit", CENTERS)
    np.testing.assert_array_equal(read_reference(folder, 2), CENTERS)
    np.testing.assert_array_equal(read_reference(f"{folder}/centers.parquet", 2), CENTERS)
    pq.write_table(pa.table({"cluster": [1, 0], "center": [[1.0, 1.0], [0.0, 0.0]]}), tmp_path / "other.parquet")
    np.testing.assert_array_equal(read_reference(str(tmp_path / "other.parquet"), 2), [[0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(ConfigError, match=r"evaluate.reference must hold centers of 3 features like the model, got 2"):
        read_reference(folder, 3)


@pytest.mark.parametrize(
    "table",
    [
        {"middle": [[1.0]]},
        {"center": [1.0]},
        {"center": [[1.0], [1.0, 2.0]]},
        {"center": [[float("nan")]]},
        {"center": [["a"]]},
        {"center": pa.array([], pa.list_(pa.float64()))},
    ],
)
def test_a_reference_without_centers_is_refused(tmp_path, table):
    pq.write_table(pa.table(table), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match=r"evaluate.reference must have a list column"):
        read_reference(str(tmp_path / "other.parquet"), 1)
