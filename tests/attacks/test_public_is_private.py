"""Files that a job calls public are no part of its private rows, however they are spelled.

Server data that were the private data once put the exact private mean and the exact largest radius into `run.json`.
"""

import gzip
import os
import pathlib
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pydantic
import pytest

from dapple_dp.api import DPKMeans
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.tables.private_source import PUBLIC, private_source
from dapple_dp.pipelines.trusted_zone.pooled_fit import job_rows
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.fit_config import FITS, validated
from dapple_dp.schemas.kmeans.jobs.model_job import PrepareConfig
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.encoding import Terms
from dapple_dp.schemas.trusted_zone.job_configs import AssignConfig, EvaluateConfig
from dapple_dp.transforms.tables import listing
from dapple_dp.transforms.tables.on_launcher import ServerFiles
from tests.scenes import lake, tables
from tests.scenes.models import run_model_job, write_model

PUBLIC_SETTINGS = {(each.section, each.name) for each in PUBLIC}


@pytest.fixture
def place(tmp_path) -> pathlib.Path:
    lake.write_files(tmp_path / "lake", [lake.table_of(lake.mixture(60)), lake.table_of(lake.mixture(60, 1))])
    return tmp_path


def the_same(place):
    return str(place / "lake")


def one_file_of_it(place):
    return str(place / "lake" / "part-01.parquet")


def another_spelling(place):
    return f"{place}/./lake/../lake/"


def relative_path(place):
    return os.path.relpath(place / "lake")


def glob_of_it(place):
    return f"{place}/l*/*-00.parquet"


def link_to_the_folder(place):
    (place / "public").symlink_to(place / "lake")
    return str(place / "public" / "part-00.parquet")


def link_in_a_public_folder(place):
    lake.write_files(place / "public", [lake.table_of(lake.mixture(60, 2))])
    (place / "public" / "more.parquet").symlink_to(place / "lake" / "part-00.parquet")
    return str(place / "public")


def hard_link(place):
    (place / "public.parquet").hardlink_to(place / "lake" / "part-00.parquet")
    return str(place / "public.parquet")


def folder_above(place):
    return str(place)


ALIASES = (
    the_same,
    one_file_of_it,
    another_spelling,
    relative_path,
    glob_of_it,
    link_to_the_folder,
    link_in_a_public_folder,
    hard_link,
    folder_above,
)


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
def test_server_data_that_are_private_data_are_refused(place, alias):
    settings = lake.job(str(place / "lake"), alias(place))
    with pytest.raises(InputError, match=r"server_data\.path must be public and no file of data\.path, got .*; name"):
        _ = plan_files(validated(settings)).source.listed.files


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
def test_a_byte_copy_of_a_private_file_is_refused(place, kind):
    private, public = place / "private", place / "public"
    for each in (private, public):
        each.mkdir()
    content = (place / "lake" / "part-00.parquet").read_bytes()
    if kind != "parquet":
        content = b"age,hours\n" + b"1.5,2.5\n" * 50
        content = content if kind == "csv" else gzip.compress(content, mtime=0)
    (private / f"rows.{kind}").write_bytes(content)
    (public / f"other_name.{kind}").write_bytes(content)
    source = private_source(
        SimpleNamespace(
            data=DataConfig(path=str(private), features=("age", "hours")), server_data=SimpleNamespace(path=str(public))
        )
    )
    with pytest.raises(
        InputError, match=r"server_data\.path must be public and no copy of data\.path, got .*other_name"
    ):
        _ = source.listed.files


def test_files_of_one_size_and_other_bytes_are_taken(place):
    """The footers of two Parquet files are equal, and a byte of a row is not."""
    copy = place / "public.parquet"
    copy.write_bytes((place / "lake" / "part-00.parquet").read_bytes())
    swap(copy)
    source = private_source(
        SimpleNamespace(
            data=DataConfig(path=str(place / "lake"), features="x"), server_data=SimpleNamespace(path=str(copy))
        )
    )
    assert len(source.listed.files) == 2


def test_no_bytes_of_private_files_are_read_for_files_of_other_sizes(place, monkeypatch):
    server = lake.write_server(place / "server.parquet")
    monkeypatch.setattr(listing, "content_digest", lambda *_: pytest.fail("a private file was read"))
    source = private_source(
        SimpleNamespace(
            data=DataConfig(path=str(place / "lake"), features="x"), server_data=SimpleNamespace(path=server)
        )
    )
    assert len(source.listed.files) == 2


def test_public_server_data_are_taken(place):
    found = plan_files(validated(lake.job(str(place / "lake"), lake.write_server(place / "server.parquet"))))
    assert len(found.source.listed.files) == 2


def swap(server):
    """Other bytes of the same size, with the footer, the time of change and the inode of the first ones."""
    before = os.stat(server)
    with open(server, "r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)[0]
        file.seek(before.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(server, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_server_data_that_change_after_they_were_read_are_refused(place):
    """A swap and the times set back: seals of private files do not reveal it, digests of bytes do."""
    server = lake.write_server(place / "server.parquet")
    files, contract = ServerFiles.at(server), TableContract(feature_list="x")
    rows, points = files.rows({"x": pa.float64()}), files.points(contract)
    assert len(rows) == len(points)
    swap(server)
    assert files.rows({"x": pa.float64()}) == rows
    np.testing.assert_array_equal(files.points(contract), points)
    with pytest.raises(InputError, match=r"server_data\.path was changed while the job read it"):
        files.digests.check()


@pytest.mark.parametrize("change", ["more", "fewer", "none"])
def test_server_files_that_come_and_go_are_refused(place, change):
    folder = place / "server"
    lake.write_files(folder, [lake.table_of(lake.mixture(20, seed)) for seed in (2, 3)])
    files = ServerFiles.at(str(folder))
    if change == "more":
        lake.write_server(folder / "zz.parquet")
    else:
        for path in sorted(folder.iterdir())[: 1 if change == "fewer" else 2]:
            path.unlink()
    assert len(files.points(TableContract(feature_list="x"))) == 40
    with pytest.raises(InputError, match=r"server_data"):
        files.digests.check()


def test_private_rows_that_stood_for_public_ones_while_they_were_read(place):
    """The plan was made from private rows; when both are compared, public ones are there."""
    server = place / "server.parquet"
    os.symlink(place / "lake" / "part-00.parquet", server)
    planned = plan_files(validated(lake.job(str(place / "lake"), str(server))))
    server.unlink()
    lake.write_server(server)
    with pytest.raises(InputError, match=r"server_data\.path was changed"):
        _ = planned.source.listed.files


def test_the_command_refuses_and_writes_and_charges_nothing(place):
    outcome = lake.run_job(lake.job(str(place / "lake"), str(place / "lake")), place)
    assert (outcome.code, outcome.out) == (2, "")
    assert "server_data.path must be public" in outcome.lines[-1]
    assert not list(place.glob("out*"))


def test_server_data_that_are_a_file_of_the_snapshot(tmp_path):
    root = tables.write_delta(tmp_path / "t", [lake.table_of(lake.mixture(60))])
    (name,) = (path for path in os.listdir(root) if path.endswith(".parquet"))
    os.link(f"{root}/{name}", tmp_path / "server.parquet")
    settings = lake.job(root, str(tmp_path / "server.parquet"), data__table={"format": "delta"})
    with pytest.raises(InputError, match=r"server_data\.path must be public"):
        _ = plan_files(validated(settings)).source.listed.files


def test_private_data_that_are_a_link_to_the_server_data(place):
    """The other way round: the private path is the alias."""
    server = lake.write_server(place / "server.parquet")
    (place / "lake" / "today.parquet").symlink_to(server)
    with pytest.raises(InputError, match=r"server_data\.path must be public"):
        _ = plan_files(validated(lake.job(str(place / "lake"), server))).source.listed.files


def test_a_fit_without_privacy_keeps_to_it_too(place):
    config = PooledFitConfig.model_validate(
        {
            "experimental": True,
            "algorithm": "optimal",
            "data": {"path": str(place / "lake"), "features": "x"},
            "server_data": {"path": str(place / "lake")},
            "n_clusters": 3,
        }
    )
    with pytest.raises(InputError, match=r"server_data\.path must be public"):
        _ = job_rows(config).source.listed.files


@pytest.mark.parametrize("job", ["assign", "evaluate"])
def test_a_model_whose_centers_are_private_rows(place, job):
    model = write_model(place / "model", lake.MEANS)
    os.link(f"{model}/centers.parquet", place / "lake" / "part-02.parquet")
    settings = {"model": model, "data": {"path": str(place / "lake"), "features": "x"}}
    outcome = run_model_job(job, settings, place)
    assert outcome.code == 2
    assert "model must be public and no file of data.path" in outcome.lines[-1]


def job_with(**settings) -> SimpleNamespace:
    """The settings of some job, as the check looks at them."""
    return SimpleNamespace(**settings)


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.setting)
def test_every_public_setting_is_compared(place, public):
    path = str(place / "lake" / "part-00.parquet")
    data = DataConfig(path=str(place / "lake"), features="x")
    section = {public.name: path}
    config = job_with(data=data, **({public.section: SimpleNamespace(**section)} if public.section else section))
    with pytest.raises(InputError, match=rf"{public.setting.replace('.', '[.]')} must be public"):
        _ = private_source(config).listed.files


@pytest.mark.parametrize("alias", [one_file_of_it, hard_link], ids=lambda alias: alias.__name__)
def test_vocabularies_of_encodings_are_compared(place, alias):
    """The terms of an encoding are in run.json: a file of private tags once went there as a whole."""
    encode = {"tags": Terms(vocabulary=alias(place), words=("a", "b"))}
    data = DataConfig(path=str(place / "lake"), features=("tags",))
    with pytest.raises(InputError, match=r"encode\.tags\.vocabulary must be public and no file of data\.path"):
        _ = private_source(job_with(data=data, encode=encode)).listed.files


def test_private_tags_are_never_the_vocabulary_of_their_own_job(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(f"{each}\n" for each in ("tags", *(f"secret{index}" for index in range(60)))))
    job = {
        "algorithm": "spherical",
        "data": {"path": str(rows), "features": ["tags"]},
        "encode": {"tags": {"kind": "terms", "vocabulary": str(rows), "width": 16}},
        "n_clusters": 2,
        "privacy": {"unit": "record", "epsilon": 5.0, "delta": 1e-6},
        "justification": {"privacy.unit": "made rows"},
        "spherical": {"steps": 2},
    }
    outcome = lake.run_job(job, tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "encode.tags.vocabulary must be public" in outcome.lines[-1]
    assert "secret" not in outcome.err
    assert not list(tmp_path.glob("out*"))


def test_parts_of_a_job_have_the_same_data(place):
    first = private_source(job_with(data=DataConfig(path=str(place / "lake"), features="x")))
    lake.write_files(place / "other", [lake.table_of(lake.mixture(30))])
    with pytest.raises(ValueError, match=r"data\.path must be the same in all parts of a job"):
        private_source(job_with(data=DataConfig(path=str(place / "other"), features="x")), first)


def test_every_part_of_a_sweep_is_compared(place):
    """Cells share one listing, and each has server data of its own."""
    data = DataConfig(path=str(place / "lake"), features="x")
    first = private_source(job_with(data=data))
    private_source(job_with(data=data, server_data=SimpleNamespace(path=one_file_of_it(place))), first)
    with pytest.raises(InputError, match=r"server_data\.path must be public"):
        _ = first.listed.files
    second = private_source(job_with(data=data))
    assert second.listed.files
    with pytest.raises(InputError, match=r"server_data\.path must be public"):
        private_source(job_with(data=data, server_data=SimpleNamespace(path=one_file_of_it(place))), second)


NOT_PUBLIC = {
    *(("data", "path"), ("data", "client_id"), ("data", "name"), ("data", "disjoint_partitions")),
    *(("data", "label"), ("data", "group"), ("names", "column"), ("k_prototypes", "domain")),
    *(("", "key_uri"), ("", "ledger"), ("masked", "secret_uri"), ("masked", "state_uri")),
    *(("masked", "identity_uri"), ("evaluate", "label")),
    *(("epoch", "name"), ("epoch", "column"), ("epoch", "first"), ("epoch", "window")),
    # Folders of reports, which are private on their own; encode has none.
    *(("reports", "path"), ("reports", "arrived")),
}
"""Settings of text that name no public file: private ones, keys, the ledger, columns and names."""
JOBS = (*FITS.values(), WindowsFit, PooledFitConfig, EncodeConfig, ClusteredFLConfig, ProfileConfig)
JOBS += (AssignConfig, EvaluateConfig, PrepareConfig)


def texts_of(model: type[pydantic.BaseModel], section: str = "") -> set[tuple[str, str]]:
    """Settings of a job that are free text, by section."""
    found = set()
    for name, field in model.model_fields.items():
        inner = [each for each in (field.annotation, *getattr(field.annotation, "__args__", ())) if each is not None]
        sections = [each for each in inner if isinstance(each, type) and issubclass(each, pydantic.BaseModel)]
        if sections and not section:
            found |= {text for each in sections for text in texts_of(each, name)}
        elif str in inner:
            found.add((section, name))
    return found


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_no_setting_of_a_job_is_forgotten(job):
    """A new setting that names a file must be compared with the private ones, or be said here to be none."""
    texts = texts_of(job)
    assert texts
    forgotten = texts - PUBLIC_SETTINGS - NOT_PUBLIC - {("data", "features")}
    assert not forgotten, (
        f"{forgotten} must be in PUBLIC of dapple_dp.pipelines.tables.private_source, if it names public files"
    )


# --- rows in memory


ROWS = lake.mixture(400)


def fitted(rows, server):
    return DPKMeans(n_clusters=3, epsilon=2.0, delta=1e-6, clipping_norm="server_radius").fit(rows, server_data=server)


class Frame:
    """A data frame as far as it matters: columns that are in memory one by one."""

    def __init__(self, columns):
        self.columns, self.iloc = columns, None

    def items(self):
        return self.columns.items()


def in_memory():
    rows, listed = ROWS.copy(), ROWS.tolist()
    yield "the same object", rows, rows
    yield "a view", rows, rows[:]
    yield "some of its rows", rows, rows[10:60]
    yield "every second row", rows, rows[::2]
    yield "reversed", rows, rows[::-1]
    yield "the whole of which X is a part", rows[:200], rows
    yield "overlapping halves", rows[:201], rows[200:]
    yield "the same memory as bytes", rows, np.frombuffer(memoryview(rows).cast("B"), dtype=float).reshape(-1, 4)
    yield "read only", rows, np.lib.stride_tricks.as_strided(rows, writeable=False)
    yield "a list", listed, listed
    yield "rows of a list", listed, listed[:50]


@pytest.mark.parametrize(("rows", "server"), [each[1:] for each in in_memory()], ids=[each[0] for each in in_memory()])
def test_server_data_in_the_memory_of_the_rows_are_refused(rows, server):
    with pytest.raises(InputError, match=r"server_data must be public and not part of X"):
        fitted(rows, server)


def test_columns_of_a_frame_are_compared():
    rows = ROWS.copy()
    frame = Frame({index: rows[:, index] for index in range(4)})
    with pytest.raises(InputError, match=r"server_data must be public and not part of X"):
        fitted(frame, Frame({0: rows[50:90, 2]}))


def test_disjoint_rows_of_one_array_are_taken():
    """Rows in turn overlap in their ranges of memory, and have no element in common."""
    rows = ROWS.copy()
    model = fitted(rows[::2], rows[1::2])
    assert model.cluster_centers_.shape == (3, 4)


def test_a_copy_cannot_be_seen():
    """The documentation says so: a comparison of values would make the refusal a fact about private rows."""
    assert "a copy of private rows cannot be distinguished" in " ".join(DPKMeans.fit.__doc__.split())
    with pytest.raises(InputError, match=r"got 3"):
        fitted(ROWS, ROWS[:, :3].copy())


def test_evaluation_rows_of_clustered_fl_are_compared(place):
    evaluation = SimpleNamespace(path=str(place / "lake"))
    data = DataConfig(path=one_file_of_it(place), features="x")
    with pytest.raises(InputError, match=r"evaluation\.path must be public"):
        _ = private_source(job_with(data=data, evaluation=evaluation)).listed.files
