"""Unusable input stops the command: exit code 2, one sentence, nothing written, no value shown."""

import os
import pathlib
import re
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.command import main as command
from tests.scenes import lake

TELLTALE = 31.41592653
"""Stands in the first coordinate of every private row, and for text in names; must never be shown."""
NAMES = ["a", "b", "c", "d"]
PROGRESS = re.compile(
    r"dapple: (run \S+: algorithm \w+, (reading public server data and )?calibrating noise|plan: \d+ rounds?, epsilon|"
    r"grouping rows by client where a client's rows are apart$|released \S+/\S+$|this job uses \d+ thread)"
)


def private_points(n_rows=40, width=4):
    points = np.full((n_rows, width), TELLTALE)
    points[:, 1:] = lake.mixture(n_rows)[:, : width - 1] if width <= 4 else 0.5
    return points


def list_tables(**changes):
    """Two files with a list column; `changes` edit the points of the second."""
    points = private_points()
    for place, value in changes.get("values", {}).items():
        points[place] = value
    return [lake.table_of(private_points()), lake.table_of(points)]


def scalar_table(**columns):
    points = private_points()
    return pa.table({name: points[:, index] for index, name in enumerate(NAMES)} | columns)


def with_nulls(column):
    values = private_points()[:, 1].tolist()
    return pa.array([None if row == 25 else value for row, value in enumerate(values)], pa.float64()), column


def file_of_columns(n_columns):
    """A Parquet file without rows that is little but the schema of this many columns, its footer written by hand."""
    root = bytes([0x48, 1]) + b"s" + bytes([0x15]) + varint(2 * n_columns) + bytes(1)
    column = bytes([0x15, 10, 0x25, 0, 0x18, 1]) + b"c" + bytes(1)
    schema = bytes([0x19, 0xFC]) + varint(n_columns + 1) + root + n_columns * column
    footer = bytes([0x15, 4]) + schema + bytes([0x16, 0, 0x19, 0x0C, 0])
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


class Desk:
    """A folder with public data, where one command runs."""

    def __init__(self, folder):
        self.folder = folder
        self.data = folder / "lake"
        self.server = lake.write_server(folder / "server.parquet")
        self.scalar_server = str(folder / "scalar_server.parquet")
        points = lake.mixture(60, seed=99)
        pq.write_table(pa.table(dict(zip(NAMES, points.T, strict=True))), self.scalar_server)
        self.before = set()

    def job(self, unit="record", **settings):
        return lake.job(str(self.data), self.server, unit, **settings)

    def scalar_job(self, **settings):
        found = self.job(**settings)
        found["data"]["features"] = NAMES
        found["server_data"]["path"] = self.scalar_server
        return found

    def run(self, settings, *flags):
        self.before = self._files() | {"job.yaml"}
        return lake.run_job(settings, self.folder, *flags)

    def refused(self, settings, *flags):
        """The sentence of a command that must end with exit code 2 and leave nothing behind."""
        return self.sentence(self.run(settings, *flags))

    def sentence(self, outcome, code=2):
        assert outcome.code == code
        assert outcome.out == ""
        *progress, last = outcome.lines
        assert all(PROGRESS.match(line) for line in progress), outcome.err
        assert last.startswith("dapple: ")
        assert last.endswith((".", "?"))
        assert "31.41" not in outcome.err
        assert "Traceback" not in outcome.err
        assert self._files() == self.before
        return last.removeprefix("dapple: ")

    def _files(self):
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def test_missing_column(desk):
    lake.write_files(desk.data, [lake.table_of(private_points()).rename_columns(["xx"])])
    refusal = f"column 'x' not found in {desk.data}/part-00.parquet; did you mean 'xx'?"
    assert desk.refused(desk.job()) == refusal


def test_string_column(desk):
    lake.write_files(desk.data, [scalar_table(c=[f"{TELLTALE}"] * 40)])
    place = f"column 'c' of {desk.data}/part-00.parquet"
    assert desk.refused(desk.scalar_job()).startswith(f"{place} must be numeric, got string; cast it")


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_value_that_is_not_finite(desk, value):
    lake.write_files(desk.data, list_tables(values={(25, 2): value}), row_group_size=20)
    place = f"column 'x' of {desk.data}/part-01.parquet, row group 1"
    assert desk.refused(desk.job()).startswith(f"{place} must hold finite numbers only, got a null, NaN or infinity;")


def test_null(desk):
    values, name = with_nulls("b")
    lake.write_files(desk.data, [scalar_table(), scalar_table(**{name: values})], row_group_size=20)
    place = f"column 'b' of {desk.data}/part-01.parquet, row group 1"
    assert desk.refused(desk.scalar_job()).startswith(f"{place} must hold finite numbers only, got a null, NaN")


@pytest.mark.parametrize(
    ("kind", "said"),
    [(pa.list_(pa.float64()), "must "), (pa.list_(pa.float64(), 4), "could not be read; ")],
    ids=["list", "fixed-size list"],
)
def test_null_row_of_a_list_column(desk, kind, said):
    rows = [*private_points().tolist()[:-1], None]
    lake.write_files(desk.data, [pa.table({"x": pa.array(rows, kind)})])
    assert f"{desk.data}/part-00.parquet, row group 0 {said}" in desk.refused(desk.job())


def test_null_client(desk):
    table = lake.table_of(private_points()).append_column("client_id", pa.array([None, *range(39)], pa.int64()))
    lake.write_files(desk.data, [table])
    place = f"column 'client_id' of {desk.data}/part-00.parquet, row group 0"
    assert desk.refused(desk.job("client")).startswith(f"{place} must name a client in every row, got a null;")


def test_files_without_rows(desk):
    empty = lake.table_of(private_points()).slice(0, 0)
    lake.write_files(desk.data, [empty, empty])
    assert desk.refused(desk.job()).startswith("The files have no rows;")


def test_no_file(desk):
    desk.data.mkdir()
    (desk.data / "_SUCCESS").touch()
    (desk.data / "notes.txt").write_text("no data")
    expected = f"No Parquet or CSV file found at {desk.data} (data.path); check path and partitions."
    assert desk.sentence(desk.run(desk.job()), 66) == expected


def test_no_server_file(desk):
    lake.write_files(desk.data, list_tables())
    os.remove(desk.server)
    assert desk.refused(desk.job()).startswith(f"No Parquet or CSV file found at {desk.server} (server_data.path);")


def test_another_width_than_the_server_data(desk):
    lake.write_files(desk.data, [lake.table_of(private_points(width=5))])
    place = f"column 'x' of {desk.data}/part-00.parquet"
    assert desk.refused(desk.job()).startswith(f"{place} must have width 4, got 5; use data of one width everywhere")


def test_garbage(desk):
    path = pathlib.Path(lake.write_files(desk.data, list_tables())) / "part-01.parquet"
    path.write_bytes(b"31.41592653 is no Parquet" * 9)
    assert desk.refused(desk.job()).startswith(f"{path} must be a readable Parquet file, got something else; check")


@pytest.mark.parametrize("cut", ["half", "footer"])
def test_broken_footer(desk, cut):
    path = pathlib.Path(lake.write_files(desk.data, list_tables())) / "part-00.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if cut == "half" else whole[:-60] + bytes(52) + whole[-8:])
    got = ", got the beginning of a Parquet file that was cut off" if cut == "half" else ""
    assert desk.refused(desk.job()).startswith(f"{path} must be a readable Parquet file{got}; check the file")


def test_a_file_of_a_million_columns(desk):
    path = pathlib.Path(lake.write_files(desk.data, list_tables())) / "part-01.parquet"
    path.write_bytes(file_of_columns(1_000_000))
    got = "got a schema of more than 131072 columns and groups"
    assert desk.refused(desk.job()).startswith(f"{path} must be a readable Parquet file, {got}; check the file")


def test_the_footer_by_hand_is_a_footer(tmp_path):
    (tmp_path / "few.parquet").write_bytes(file_of_columns(3))
    assert pq.ParquetFile(tmp_path / "few.parquet").metadata.num_columns == 3


def test_a_row_group_that_blows_up(desk):
    desk.data.mkdir()
    path = desk.data / "part-00.parquet"
    zeros = pa.repeat(pa.scalar(0.0), 1 << 22)
    pq.write_table(pa.table(dict.fromkeys([*NAMES, *map(str, range(61))], zeros)), path, row_group_size=1 << 22)
    job = desk.scalar_job()
    job["data"]["features"] = [*NAMES, *map(str, range(61))]
    job |= {"server_data": "none", "clipping": {"norm": 50.0, "center": "none"}, "algorithm": "central_tree"}
    job |= {"tree": {"radius": 50.0}}
    assert path.stat().st_size < 2_000_000
    assert desk.refused(job).startswith(f"{path}, row group 0 unpacks to more than 2 GiB and 100 times its size")


def test_broken_pages(desk):
    path = pathlib.Path(lake.write_files(desk.data, list_tables())) / "part-01.parquet"
    start = pq.read_metadata(path).row_group(0).column(0)
    offset = start.dictionary_page_offset or start.data_page_offset
    whole = path.read_bytes()
    path.write_bytes(
        whole[:offset] + b"\xff" * start.total_compressed_size + whole[offset + start.total_compressed_size :]
    )
    assert desk.refused(desk.job()).startswith(f"{path}, row group 0 must be readable, got a value of an unknown type")


def test_records_may_share_a_client_across_row_groups(desk):
    table = lake.table_of(private_points(), clients=np.zeros(40, dtype=np.int64))
    lake.write_files(desk.data, [table], row_group_size=20)
    assert desk.run(desk.job(data__client_id="client_id")).code == 0


def test_missing_client_column(desk):
    lake.write_files(desk.data, list_tables())
    start = f"column 'client_id' not found in {desk.data}/part-00.parquet;"
    assert desk.refused(desk.job("client")).startswith(start)


SETTINGS = [
    ({"n_clusters": 61}, "n_clusters must be at most the number of server rows, got 61 clusters and 60 rows;"),
    ({"n_clusters": 0}, "n_clusters must be"),
    ({"privacy__epsilon": 0.0}, "privacy.epsilon must be greater than 0, got 0.0;"),
    ({"privacy__epsilon": -1.0}, "privacy.epsilon must be greater than 0, got -1.0;"),
    ({"privacy__epsilon": float("inf")}, "privacy.epsilon must be"),
    ({"privacy__delta": 1.0}, "privacy.delta must be less than 1, got 1.0;"),
    ({"privacy__delta": 0.0}, "privacy.delta must be greater than 0, got 0.0;"),
    ({"privacy__epsilonn": 1.0}, "privacy.epsilonn is not a setting; did you mean privacy.epsilon?"),
    ({"n_cluster": 3}, "n_cluster is not a setting; did you mean n_clusters?"),
    ({"data__client_id": None, "privacy__unit": "client"}, "data.client_id is required for privacy.unit client;"),
    ({"privacy__unit": "row"}, "privacy.unit must be 'record' or 'client', got 'row';"),
]


@pytest.mark.parametrize(("changes", "start"), SETTINGS, ids=[str(changes) for changes, _ in SETTINGS])
def test_settings(desk, changes, start):
    lake.write_files(desk.data, list_tables())
    assert desk.refused(desk.job(**changes)).startswith(start)


@pytest.mark.parametrize("text", ["data: [unclosed", "a: b: c", "- just\n- a list", "31", ""])
def test_text_that_is_no_job(desk, text):
    assert desk.refused(text).startswith("the job must be ")


def test_missing_config(desk):
    desk.before = {"server.parquet", "scalar_server.parquet"}
    missing = desk.folder / "nowhere.yaml"
    outcome = lake.run_command("fit", "--config", str(missing), "--output", str(desk.folder / "out"))
    assert desk.sentence(outcome) == f"--config must be a readable YAML file, got {missing}; check the path."


@pytest.mark.parametrize("folder", [True, False])
def test_output_that_holds_something(desk, folder):
    lake.write_files(desk.data, list_tables())
    occupied = desk.folder / "out"
    if folder:
        occupied.mkdir()
    (occupied / "old.txt" if folder else occupied).write_text("kept")
    expected = f"--output must be a new or empty folder, got {occupied}; choose another one."
    assert desk.refused(desk.job()) == expected


FLAGS = [
    (["--runer=FnApiRunner"], "--runer is not a flag of Dapple or Beam; did you mean --runner"),
    (
        ["--outputs", "elsewhere"],
        "--outputs is not a flag of Dapple or Beam; did you mean --output",
    ),
    (["--run_id", "../escape"], "run_id must be letters, digits, '-', '_' and '.', got '../escape';"),
]


@pytest.mark.parametrize(("flags", "start"), FLAGS, ids=[flags[0] for flags, _ in FLAGS])
def test_flags(desk, flags, start):
    lake.write_files(desk.data, list_tables())
    assert desk.refused(desk.job(), *flags).startswith(start)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ((), f"the job must be one of {', '.join(command._TOP)}, got nothing;"),
        (("fitt",), f"the job must be one of {', '.join(command._TOP)}, got fitt;"),
        (("fit",), "the command line must be `dapple JOB --config FILE --output DIR [Beam flags]`: "),
    ],
)
def test_words(desk, words, start):
    desk.before = {"server.parquet", "scalar_server.parquet"}
    assert desk.sentence(lake.run_command(*words)).startswith(start)


@pytest.mark.parametrize(
    ("content", "mode", "rule"),
    [
        (lake.KEY, 0o640, "be a file of mode 0600, but others can read it; run chmod 600 {uri}."),
        (lake.KEY[:-1], 0o600, "hold exactly 32 bytes, got 31; write a new random key."),
    ],
    ids=["readable", "short"],
)
def test_a_key_that_cannot_be_used(desk, content, mode, rule):
    lake.write_files(desk.data, list_tables())
    uri = lake.write_key(desk.folder / "key", content, mode)
    assert desk.refused(desk.job(key_uri=uri)) == f"key_uri must {rule.format(uri=uri)}"
    assert stat.S_IMODE(os.stat(uri).st_mode) == mode
