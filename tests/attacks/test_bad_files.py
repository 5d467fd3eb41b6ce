"""A file that another party wrote ends a job in one sentence with exit code 2 or 5, at once, and with nothing changed.

About thirty such files once ended with exit code 1, some of them deleted other files, and some never ended.
"""

import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.run import round_driver
from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.schemas.errors import ConfigError, DappleError, InputError
from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.settings import json_text, rejection, yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.checkpoint import Checkpoint, CheckpointFolder, RunBinding
from dapple_dp.transforms.privacy.key_files import key_digest
from tests.fuzz import mutations
from tests.fuzz.formats import FORMATS
from tests.fuzz.trial import within
from tests.scenes import lake, models, toy_rounds
from tests.scenes.reports import settings as report_settings

REFUSAL = Refusal(kind=InputError, rule="the file must be good", remedy="mend it")
DEEP = b"[" * 100_000
AT_ONCE = 30.0
"""Seconds of processors."""


def refused(name: str, folder: pathlib.Path, content: bytes) -> DappleError:
    """The sentence for a file of a format, which must come at once and leave all other files as they are."""
    folder.mkdir(exist_ok=True)
    form = FORMATS[name]
    form.make(folder)
    form.read(folder)
    (folder / form.file).write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with within(AT_ONCE), pytest.raises(DappleError) as caught:
        form.read(folder)
    assert caught.value.exit_code in (2, 5)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    return caught.value


def changed(name: str, folder: pathlib.Path, *places: str, **values: object) -> bytes:
    """A good JSON file of a format with some values changed, in the object at `places`."""
    good = folder / "good"
    good.mkdir()
    FORMATS[name].make(good)
    content = found = json.loads((good / FORMATS[name].file).read_text())
    for place in places:
        found = found[int(place) if isinstance(found, list) else place]
    found |= values
    return json.dumps(content).encode()


@pytest.mark.parametrize("name", ["model", "previous", "manifest", "parameters", "plan", "broadcast", "checkpoint"])
@pytest.mark.parametrize("content", [DEEP, b'{"a":' * 100_000, b"", b"\xff", b"null", b"[]", b"{}"])
def test_a_deep_or_foreign_json_file(tmp_path, name, content):
    refused(name, tmp_path / "place", content)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "{b: " * 3_000,
        "- " * 20_000,
        "a: &a [*a]",
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 60)}]}}\n" for n in range(1, 9)),
        "a: !!int " + ":".join(["1"] * 300_000),
        "a: !!bool q",
        "a: !!timestamp q",
        'a: !!int ""',
        'path: "a\\0b"',
        'path: "\\ud800"',
        "a: " + "x" * (1 << 21),
    ],
)
def test_a_config_that_costs_its_reader_stack_memory_or_minutes(text):
    with within(AT_ONCE), pytest.raises(ConfigError, match="the job must be valid YAML, got"):
        yaml_text.parse(text)


def test_a_long_text_of_numbers_to_the_base_60_is_a_text():
    with within(AT_ONCE):
        assert yaml_text.parse("a: " + ":".join(["1"] * 300_000))["a"].count(":") == 299_999


@pytest.mark.parametrize("text", ["[" * 20_000, "{b: " * 3_000])
def test_the_command_refuses_a_deep_config(tmp_path, text):
    outcome = lake.run_job(text, tmp_path)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert os.listdir(tmp_path) == ["job.yaml"]


@pytest.mark.parametrize("epsilon", [1e-320, 1e300])
def test_an_epsilon_without_a_noise(tmp_path, epsilon):
    job = lake.job(str(tmp_path), None, privacy__epsilon=epsilon)
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 2
    assert "privacy.epsilon must be from 1e-06 to 1e+06" in outcome.err


def test_reports_have_no_epsilon_of_a_thousand():
    job = report_settings(privacy__epsilon=1000.0, privacy__delta=1e-6)
    job["reports"]["mode"] = "shuffle"
    with pytest.raises(ConfigError, match=r"privacy\.epsilon must be at most 100 for reports"):
        rejection.check_config(EncodeConfig, job)


@pytest.mark.parametrize(
    ("places", "values"),
    [
        ((), {"features": "ab"}),
        ((), {"features": [1, 2]}),
        ((), {"features": ["a", "a"]}),
        ((), {"features": [f"f{index}" for index in range(200_000)]}),
        ((), {"n_clusters": 10**9}),
        ((), {"n_clusters": True}),
        ((), {"encoding": "x"}),
        ((), {"encoding": [{"column": "a", "weight": 1.0, "mean": 0.0, "stddev": 0.0}]}),
        ((), {"depth": 13}),
        ((), {"version": True}),
        ((), {"more": 1}),
        (("guarantee",), {"min_batch": "x"}),
        (("guarantee",), {"local_epsilon": float("inf")}),
        (("guarantee",), {"epsilon": 1e-320}),
        (("choices", "0"), {"threshold": "9" * 5000}),
        (("choices", "0"), {"size": 2**40}),
    ],
)
def test_parameters_of_reports(tmp_path, places, values):
    refused("parameters", tmp_path / "place", changed("parameters", tmp_path, *places, **values))


@pytest.mark.parametrize(
    ("places", "values"),
    [
        (("rounds", "0", "releases", "0"), {"noise_multiplier": float("nan")}),
        (("rounds", "0", "releases", "0"), {"noise_multiplier": -1.0}),
        (("rounds", "0", "releases", "0"), {"noise_multiplier": 0}),
        (("rounds", "0", "releases", "0"), {"noise_multiplier": float("inf")}),
        (("rounds", "0", "releases", "0"), {"noise_multiplier": 1e300}),
        (("rounds", "0", "releases", "0"), {"noise_multiplier": "7"}),
        (("rounds", "0", "releases", "0"), {"sensitivity": 0}),
        (("rounds", "0", "releases", "0"), {"shape": [10**12]}),
        (("rounds", "0", "releases", "0"), {"shape": [10**8, 10**8]}),
        (("rounds", "0", "releases", "0"), {"share": -1}),
        (("rounds", "0"), {"path": ["a"]}),
        (("rounds", "0"), {"path": "../../a"}),
        ((), {"run": 5}),
        ((), {"run": None}),
        ((), {"pairwise": {"corrupt": 2.0, "dropout": 0.1}}),
    ],
)
def test_plans_of_an_exchange(tmp_path, places, values):
    assert refused("plan", tmp_path / "place", changed("plan", tmp_path, *places, **values)).exit_code == 5


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"broadcast": "zz"}', b'{"broadcast": "00", "round": "other"}'])
def test_broadcasts_of_an_exchange(tmp_path, content):
    assert refused("broadcast", tmp_path / "place", content).exit_code == 5


@pytest.mark.parametrize(
    ("places", "values"),
    [
        ((), {"arrays": None}),
        ((), {"binding": []}),
        (("binding",), {"more": "x"}),
        ((), {"rounds": "5"}),
        ((), {"rounds": -1}),
        ((), {"rounds": 10**18}),
        ((), {"rounds": 4}),
        (("arrays",), {"file": "../victim.npz"}),
        (("arrays",), {"file": "/tmp/victim.npz"}),
    ],
)
def test_checkpoints(tmp_path, places, values):
    refused("checkpoint", tmp_path / "place", changed("checkpoint", tmp_path, *places, **values))


def test_a_checkpoint_deletes_no_file_of_others(tmp_path):
    """Its arrays were loaded from anywhere, and removed there after the next chunk."""
    folder = tmp_path / "run"
    folder.mkdir()
    FORMATS["checkpoint"].make(folder)
    victim = tmp_path / "victim.npz"
    shutil.copy(folder / "round-000005.npz", victim)
    content = json.loads((folder / "checkpoint.json").read_text())
    content["arrays"]["file"] = "../victim.npz"
    (folder / "checkpoint.json").write_text(json.dumps(content))
    checkpoints = CheckpointFolder(str(folder))
    with pytest.raises(InputError, match=r"as it was written, got unexpected content at 'arrays\.file'"):
        checkpoints.latest()
    assert victim.exists()


@pytest.mark.parametrize("rounds", [0, 1, 3, 10**6])
def test_a_checkpoint_neither_skips_nor_repeats_rounds(tmp_path, rounds):
    """A run of 6 rounds that was killed in the third and whose checkpoint says another number."""
    config = toy_rounds.ToyConfig(rounds=6)
    folder = RunFolder(str(tmp_path / "out"), "r")
    folder.open()
    protocol = toy_rounds.ToyProtocol(6, round_driver.run_key(folder, None))
    _after_two(folder, protocol, config)
    staging = pathlib.Path(folder.staging)
    content = json.loads((staging / "checkpoint.json").read_text())
    os.rename(staging / content["arrays"]["file"], staging / f"round-{rounds:06d}.npz")
    content["arrays"]["file"], content["rounds"] = f"round-{rounds:06d}.npz", rounds
    (staging / "checkpoint.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="must be a checkpoint as it was written, got another number of rounds"):
        toy_rounds.run(config, folder.output, "r")
    assert not pathlib.Path(folder.output).exists()


def _after_two(folder: RunFolder, protocol: toy_rounds.ToyProtocol, config: toy_rounds.ToyConfig) -> None:
    events = protocol.events(6)
    binding = RunBinding(
        config_digest=config_digest(config),
        input_fingerprint="rows",
        key_digest=key_digest(folder.path("run.key")),
        plan_digest=round_driver.plan_digest(events),
    )
    arrays = {"total": np.ones(1, dtype=np.int64), "last": np.array(2)}
    CheckpointFolder(folder.staging).save(
        Checkpoint(rounds=2, binding=binding, plan={"events": events}, events=protocol.events(2), arrays=arrays)
    )


def _npz(**members: bytes) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)
        return file.getvalue()


def _npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def _saved(save: object, array: np.ndarray) -> bytes:
    with io.BytesIO() as file:
        save(file, models=array)  # type: ignore[operator]
        return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        _saved(np.savez, np.array([{}])),
        _saved(np.savez_compressed, np.zeros(1 << 24)),
        _npz(models=_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")),
        _npz(models=_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", bytes(8))),
        _npz(models=_npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\nsystem\n(S'true'\ntR.")),
        _npz(models=_npy("(" * 5000)),
        _npz(**{f"a{index}": b"" for index in range(1000)}),
    ],
    ids=["objects", "bomb", "shape", "negative", "pickle", "deep header", "many"],
)
def test_arrays_that_unpack_to_more_than_they_are(content):
    with within(AT_ONCE), pytest.raises(InputError, match="the file must be good, got"):
        untrusted.arrays_of(content, REFUSAL)


@pytest.mark.parametrize("name", ["config", "model", "manifest", "parameters", "plan", "checkpoint", "lake", "arrays"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    form = FORMATS[name]
    form.make(tmp_path)
    (tmp_path / form.file).unlink()
    os.mkfifo(tmp_path / form.file)
    with within(AT_ONCE), pytest.raises(DappleError) as caught:
        form.read(tmp_path)
    assert caught.value.exit_code in (2, 5)


def test_ids_of_thirty_megabytes(tmp_path):
    ids = [f"{index}" + "x" * 30_000_000 for index in range(3)]
    table = pa.table({"x": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float64(), 2)), "client_id": ids})
    path = lake.write_files(tmp_path / "lake", [table])
    job = lake.job(path, None, unit="client")
    with within(120.0):
        outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 2
    assert "client ids must have at most 4096 bytes" in outcome.err
    assert not (tmp_path / "out").exists()


def in_a_process(code: str, *words: str) -> str:
    """Returns what code writes whose process may be ended by a fault of a library."""
    found = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr[-500:]
    return found.stdout


READ = (
    "import sys\nfrom dapple_dp.schemas.errors import InputError, ConfigError\n"
    "from dapple_dp.schemas.tables.contract import TableContract\n"
    "from dapple_dp.transforms.files.saved_model import read_reference\n"
    "from dapple_dp.transforms.tables.file_seal import seal_of\n"
    "from dapple_dp.transforms.tables.listing import ListedFile\n"
    "from dapple_dp.transforms.tables.read import _list_row_groups\n"
    "def listed():\n  return ListedFile(sys.argv[1], sys.argv[1], seal_of(sys.argv[1]).text)\n"
    "try:\n  {call}\nexcept (InputError, ConfigError) as error:\n  sys.stdout.write(str(error))\n"
)


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def nested_schema(n_levels: int) -> bytes:
    """A Parquet file without rows, of groups within groups."""
    root = bytes([0x48, 1]) + b"s" + bytes([0x15, 2, 0])
    group = bytes([0x35, 0, 0x18, 1]) + b"g" + bytes([0x15, 2, 0])
    leaf = bytes([0x15, 10, 0x25, 0, 0x18, 1]) + b"c" + bytes(1)
    schema = bytes([0x19, 0xFC]) + _varint(n_levels + 2) + root + n_levels * group + leaf
    footer = bytes([0x15, 4]) + schema + bytes([0x16, 0, 0x19, 0x0C, 0])
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("call", ["read_reference(sys.argv[1], 4)", "list(_list_row_groups(listed(), None))"])
def test_a_schema_of_a_hundred_thousand_levels(tmp_path, call):
    """Arrow left its stack and took the process along."""
    (tmp_path / "deep.parquet").write_bytes(nested_schema(100_000))
    assert "must" in in_a_process(READ.format(call=call), str(tmp_path / "deep.parquet"))


def test_a_footer_that_contradicts_itself(tmp_path):
    """Arrow ended the process when it was asked for the sizes of a column."""
    form = FORMATS["centers"]
    form.make(tmp_path)
    good = (tmp_path / form.file).read_bytes()
    (tmp_path / "bad.parquet").write_bytes(mutations.mutated(random.Random("centers 2"), good, form.ways))
    contract = "TableContract(feature_list='center')"
    for call in ("read_reference(sys.argv[1], 4)", f"list(_list_row_groups(listed(), {contract}))"):
        in_a_process(READ.format(call=call), str(tmp_path / "bad.parquet"))


def test_a_dictionary_that_repeats_a_long_value(monkeypatch):
    """A megabyte a hundred thousand times is a small file."""
    monkeypatch.setattr(untrusted, "_MOST_TABLE_BYTES", 1 << 26)
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["x" * (1 << 20)]))
    with io.BytesIO() as file:
        pq.write_table(pa.table({"a": column.cast(pa.string())}), file)
        content = file.getvalue()
    assert len(content) < 1 << 22
    with within(AT_ONCE), pytest.raises(InputError, match="more values than such a file can hold"):
        untrusted.table_of(content, REFUSAL, untrusted.TableForm.by_size())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"epsilon": 1, "epsilon": 2}', "the key 'epsilon' twice"),
        ('{"epsilon": NaN}', "a number that is not finite"),
        ('{"epsilon": 1e999}', "a number that is not finite"),
        ('{"epsilon": ' + "1" * 5000 + "}", "an integer of more than 40 digits"),
        ('{"run": "\\ud800"}', "text that isn't JSON"),
        ('"' + '\\"' * 500_000, "text that isn't JSON"),
        ("[" * 33 + "]" * 33, "values nested more than 32 deep"),
    ],
)
def test_json_that_two_readers_understand_differently(text, fault):
    with within(AT_ONCE), pytest.raises(MalformedError, match=fault):
        json_text.parse(text)


def test_brackets_in_strings_are_no_depth():
    assert json_text.parse('["' + "[" * 1000 + '\\"{"]') == ["[" * 1000 + '"{']


@pytest.mark.parametrize("name", ["../../victim", "/etc/passwd", "a/../../b", "", ".hidden", "a\nb"])
def test_a_manifest_names_no_file_outside(tmp_path, name):
    folder = RunFolder(str(tmp_path / "out"), "r")
    folder.open()
    manifest = {"format": 1, "files": {name: "0" * 64}, "config_digest": "a"}
    pathlib.Path(folder.path("run.json")).write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="must be the manifest of the interrupted run"):
        round_driver.finish(folder)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "column",
    [
        {"column": "a", "weight": 1.0, "mean": 0.0, "stddev": 0.0},
        {"column": "a", "weight": -1.0, "mean": 0.0, "stddev": 1.0},
        {"column": "a", "weight": 1.0, "edges": [2.0, 1.0]},
        {"column": "a", "weight": 1.0, "edges": []},
        {"column": "a", "weight": 1.0, "vocabulary": ["a", 1]},
        {"column": "a", "weight": 1.0, "vocabulary": []},
        {"column": 5, "weight": 1.0, "mean": 0.0, "stddev": 1.0},
    ],
)
def test_encodings_that_no_fit_wrote(column):
    with pytest.raises(InputError, match="an encoding must be one that fit wrote"):
        Encoder.from_json([column])


def test_a_model_whose_clusters_have_no_numbers(tmp_path):
    folder = pathlib.Path(models.write_model(tmp_path / "fit", np.eye(3, 4)))
    table = pq.read_table(folder / "centers.parquet")
    for numbers in ([0, None, 2], [0, 0, 1], [-1, 0, 1]):
        other = table.set_column(0, "cluster", pa.array(numbers, pa.int32()))
        pq.write_table(other, folder / "centers.parquet")
        manifest = json.loads((folder / "run.json").read_text())
        digest = hashlib.sha256((folder / "centers.parquet").read_bytes()).hexdigest()
        (folder / "run.json").write_text(json.dumps(manifest | {"files": {"centers.parquet": digest}}))
        data = lake.write_lake(tmp_path / "lake", lake.mixture(9))
        job = {"model": str(folder), "data": {"path": data, "features": "x"}}
        outcome = models.run_model_job("assign", job, tmp_path)
        assert outcome.code == 2, outcome.err


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """Reports of a lake with their parameters and manifest, and the settings of the job."""
    folder = tmp_path_factory.mktemp("encoded")
    data = lake.write_lake(folder / "lake", lake.mixture(300), np.arange(300))
    job = report_settings(data, reports__path=str(folder / "out"), tree={"radius": 10.0, "depth": 3})
    (folder / "encode.yaml").write_text(yaml.safe_dump(job))
    outcome = lake.run_command("encode", "--config", str(folder / "encode.yaml"), "--output", str(folder / "out"))
    assert outcome.code == 0, outcome.err
    return folder, job


@pytest.mark.parametrize("values", [{"depth": 12}, {"n_clusters": 10**9}, {"features": "abcd"}])
def test_reports_are_not_decoded_under_other_parameters(encoded, tmp_path, values):
    folder, job = encoded
    shutil.copytree(folder / "out", tmp_path / "out")
    parameters = tmp_path / "out" / "parameters.json"
    parameters.write_text(json.dumps(json.loads(parameters.read_text()) | values))
    job = {"reports": job["reports"] | {"path": str(tmp_path / "out")}}
    (tmp_path / "decode.yaml").write_text(yaml.safe_dump(job))
    with within(60.0):
        outcome = lake.run_command(
            "decode", "--config", str(tmp_path / "decode.yaml"), "--output", str(tmp_path / "decoded")
        )
    assert outcome.code == 2, outcome.err
    assert not (tmp_path / "decoded").exists()
