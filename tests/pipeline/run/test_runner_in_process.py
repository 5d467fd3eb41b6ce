"""`--runner=InProcess`: the bytes, the ledger and the refusals of a fit on Beam, from a loop in one process."""

import itertools
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp import api
from dapple_dp.pipelines.command.words import WORDS, import_name
from dapple_dp.pipelines.jobs.job import JobChoice
from dapple_dp.pipelines.kmeans import fit_rounds
from dapple_dp.pipelines.run import in_process, options
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.rounds import local_rows
from tests.scenes import lake, ledgers
from tests.scenes.protocol_jobs import ALONE, settings_of

ENGINE = "--runner=InProcess"
CLIENT_ROWS = 5
N_ROWS = 400


@pytest.fixture
def key(tmp_path):
    with lake.written_keys_draw():
        yield lake.write_key(tmp_path / "key")


def run(folder: pathlib.Path, job: dict, *flags: str) -> lake.Outcome:
    folder.mkdir(exist_ok=True)
    return lake.run_job(job, folder, "--run_id", "run", *flags)


def both(folder: pathlib.Path, job: dict) -> list[pathlib.Path]:
    """The output folders of a job on Beam and in process."""
    places = []
    for name, flags in {"beam": (), "loop": (ENGINE,)}.items():
        done = run(folder / name, job, *flags)
        assert done.code == 0, done.err
        places.append(folder / name / "out")
    return places


def assert_same(beam: pathlib.Path, loop: pathlib.Path) -> None:
    """Released bytes and names of files are the same, and so is the guarantee but for the engine."""
    assert lake.released(beam) == lake.released(loop)
    assert sorted(each.name for each in beam.iterdir()) == sorted(each.name for each in loop.iterdir())
    one, other = (json.loads((each / "privacy.json").read_text()) for each in (beam, loop))
    assert "engine" not in one
    assert other.pop("engine") == "InProcess"
    assert one == other
    pages = ((each / "report.html").read_text() for each in (beam, loop))
    assert ["without a Beam graph" in page for page in pages] == [False, True]


def lake_job(folder: pathlib.Path, algorithm: str, unit: str, points: np.ndarray, *, split: bool = False) -> dict:
    clients = np.arange(len(points)) % (len(points) // CLIENT_ROWS) if split else np.arange(len(points)) // CLIENT_ROWS
    if split:
        half = len(points) // 2
        parts = (slice(0, half), slice(half, None))
        tables = [lake.table_of(points[part], clients[part], codes=True) for part in parts]
        path = lake.write_files(folder / "lake", tables)
    else:
        path = lake.write_lake(folder / "lake", points, clients, n_files=2, row_group_size=100, codes=True)
    job = lake.job(path, lake.write_server(folder / "server.parquet"), unit, **settings_of(algorithm))
    job["clipping"] |= {"client_rows": CLIENT_ROWS} if unit == "client" else {}
    return job


@pytest.mark.parametrize(("algorithm", "unit"), zip(ALONE, itertools.cycle(["record", "client"])), ids=str)
def test_every_protocol_releases_the_bytes_of_beam(tmp_path, key, algorithm, unit):
    """Both units of each are in `tests/pipeline/rounds/test_engines.py`, without what a job does around its rounds."""
    points = lake.mixture(N_ROWS).astype(np.float32)
    job = lake_job(tmp_path, algorithm, unit, points, split=unit == "client") | {"key_uri": key}
    assert_same(*both(tmp_path, job))


def test_columns_of_csv_files_with_bounds_and_missing_values_are_those_of_beam(tmp_path, key):
    points = 50.0 + 10.0 * lake.mixture(N_ROWS)
    (tmp_path / "lake").mkdir()
    points[points[:, 0] > 90.0, 0] = points[-3:, 1] = np.nan
    for number, part in enumerate(np.array_split(points, 3)):
        columns = {name: pa.array(part[:, place], from_pandas=True) for place, name in enumerate(("age", "hours"))}
        pyarrow.csv.write_csv(pa.table(columns), tmp_path / "lake" / f"{number}.csv")
    bounds = {name: {"kind": "bounds", "lower": 0, "upper": 120} for name in ("age", "hours")}
    job = {
        "algorithm": "dp_lloyd",
        "data": {"path": str(tmp_path / "lake"), "features": ["age", "hours"], "missing": {"age": {"fill": 40}}},
        "encode": bounds,
        "dp_lloyd": {"domain": [0, 1]},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1e-6},
        "key_uri": key,
    }
    assert_same(*both(tmp_path, job | {"data": job["data"] | {"on_invalid_rows": "drop"}}))
    refused = [run(tmp_path / name, job, *flags) for name, flags in {"b": (), "l": (ENGINE,)}.items()]
    assert refused[0].code == refused[1].code == 2
    assert refused[0].lines[-1] == refused[1].lines[-1]
    assert "hours" in refused[1].lines[-1]


def test_server_data_too_large_for_a_graph_are_those_of_beam(tmp_path, key):
    job = lake_job(tmp_path, "feddp_kmeans", "record", lake.mixture(N_ROWS)) | {"key_uri": key}
    lake.write_server(tmp_path / "server.parquet", lake.mixture(3000, seed=7))
    assert_same(*both(tmp_path, job))


@pytest.mark.slow
def test_a_bound_on_rows_of_a_client_keeps_the_rows_that_beam_keeps(tmp_path, key):
    job = lake_job(tmp_path, "dp_lloyd", "client", lake.mixture(N_ROWS), split=True)
    job["data"]["max_rows_per_client"] = 3
    assert_same(*both(tmp_path, job | {"key_uri": key}))


def test_links_lead_to_the_rows_of_beam(tmp_path, key):
    job = lake_job(tmp_path, "dp_lloyd", "record", lake.mixture(N_ROWS)) | {"key_uri": key}
    (tmp_path / "lake").rename(tmp_path / "real")
    (tmp_path / "lake").symlink_to(tmp_path / "real", target_is_directory=True)
    assert_same(*both(tmp_path, job))


@pytest.fixture
def small(tmp_path):
    """A job of several rounds without server data."""
    return lake_job(tmp_path, "dp_lloyd", "record", lake.mixture(N_ROWS))


def test_no_graph_is_built(tmp_path, small, monkeypatch):
    monkeypatch.setattr("apache_beam.Pipeline.__init__", lambda *_, **__: pytest.fail("a pipeline was made"))
    small["privacy"]["unit"] = "client"
    small["clipping"]["client_rows"] = CLIENT_ROWS
    assert run(tmp_path / "job", small | {"data": small["data"] | {"client_id": "client_id"}}, ENGINE).code == 0


def test_its_output_is_that_of_any_fit(tmp_path, small):
    done = run(tmp_path / "job", small, ENGINE)
    assert done.code == 0, done.err
    assert "this job runs in one process without Beam" in done.err
    out = str(tmp_path / "job" / "out")
    page = (tmp_path / "job" / "out" / "report.html").read_text()
    assert (
        "InProcess: in one process, without a Beam graph; the code, plan and noise of all rounds were audited" in page
    )
    assert "its workers read rows" not in (tmp_path / "job" / "out" / "deployment.yaml").read_text()
    assert json.loads(lake.run_command("verify", out).out.splitlines()[-1])["epsilon"] is not None
    assigned = {"data": small["data"], "model": out}
    (tmp_path / "assign.yaml").write_text(yaml.safe_dump(assigned))
    words = ("--config", str(tmp_path / "assign.yaml"), "--output", str(tmp_path / "assigned"))
    assert lake.run_command("assign", *words).code == 0
    # The next run on Beam can start from it.
    later = small | {"recurring": {"previous": out}}
    assert run(tmp_path / "later", later).code == 0


def test_topics_run_in_process_too(tmp_path, key):
    table = lake.table_of(np.abs(lake.mixture(N_ROWS)))
    tags = pa.array([["cat", "dog"][: 1 + row % 2] for row in range(N_ROWS)])
    rows = lake.write_files(tmp_path / "lake", [table.append_column("tags", tags)])
    (tmp_path / "words.txt").write_text("cat\ndog\ncow\n")
    job = lake.job(rows, None, **settings_of("spherical")) | {"key_uri": key}
    job["names"] = {"column": "tags", "vocabulary": str(tmp_path / "words.txt")}
    done = {}
    for name, flags in {"beam": (), "loop": (ENGINE,)}.items():
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        words = ("--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / name), "--run_id", "run")
        done[name] = lake.run_command("topics", *words, *flags)
        assert done[name].code == 0, done[name].err
    assert_same(tmp_path / "beam", tmp_path / "loop")


def test_python_takes_it_as_an_option_of_beam(small):
    given = options.beam_options([ENGINE])
    result = api.fit(validated(small), given)
    assert result.privacy.engine == "InProcess"
    assert len(result.model.centers) == 3


# The ledger.


def charged(folder: pathlib.Path, job: dict) -> dict:
    folder.mkdir(exist_ok=True)
    ledgers.new_ledger(folder, ledgers.basic_limit(9.0, 1e-5), "people")
    return job | {"ledger": str(folder / "ledger.sqlite"), "data": job["data"] | {"name": "people"}}


def entries(folder: pathlib.Path) -> list[tuple[str, dict]]:
    book = ledgers.Ledger(str(folder / "ledger.sqlite")).entries()[1:]
    return [(each.kind, json.loads(each.content)) for each in book]


def test_the_ledger_has_the_entries_of_beam(tmp_path, small, key):
    found = {}
    for name, flags in {"beam": (), "loop": (ENGINE,)}.items():
        folder = tmp_path / name
        done = run(folder, charged(folder, small | {"key_uri": key}), *flags)
        assert done.code == 0, done.err
        found[name] = entries(folder)
    for (kind, one), (other_kind, other) in zip(found["beam"], found["loop"], strict=True):
        assert kind == other_kind
        own = {"reserve": {"output", "nonce"}, "start": set(), "commit": {"manifest"}}[kind]
        assert {name for name in one if one[name] != other[name]} <= own, kind
        assert one.keys() == other.keys()
    assert [kind for kind, _ in found["loop"]] == ["reserve", "start", "commit"]


def stopping(monkeypatch, error: BaseException, after: int) -> None:
    """The rounds stop after so many blocks."""
    seen, measure = [], in_process.loop.measure

    def failing(*given):
        seen.append(given)
        if len(seen) > after:
            raise error
        return measure(*given)

    monkeypatch.setattr(in_process.loop, "measure", failing)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("(400, 2)"), OSError(28, "No space left")])
def test_a_run_that_stopped_leaves_nothing(tmp_path, small, monkeypatch, error):
    with monkeypatch.context() as patched:
        stopping(patched, error, 6)
        stopped = run(tmp_path / "job", small, ENGINE)
    assert stopped.code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert "400" not in stopped.err.replace(str(tmp_path), "")
    assert sorted(each.name for each in (tmp_path / "job").iterdir()) == ["job.yaml"]
    assert run(tmp_path / "job", small, ENGINE).code == 0


@pytest.mark.parametrize("engine", [(), (ENGINE,)], ids=["beam", "loop"])
def test_a_charged_run_that_stopped_goes_on_for_free_on_either_engine(tmp_path, small, monkeypatch, engine):
    job = charged(tmp_path / "job", small)
    with monkeypatch.context() as patched:
        stopping(patched, KeyboardInterrupt(), 6)
        assert run(tmp_path / "job", job, ENGINE).code == 130
    assert [kind for kind, _ in entries(tmp_path / "job")] == ["reserve", "start"]
    again = run(tmp_path / "job", job, *engine)
    assert again.code == 0, again.err
    assert "resuming without a further charge" in again.err
    assert [kind for kind, _ in entries(tmp_path / "job")][-1] == "commit"
    assert len(ledgers.charges_of(ledgers.Ledger(job["ledger"]).entries(), "people")) == 1
    statement = json.loads((tmp_path / "job" / "out" / "privacy.json").read_text())
    assert statement.get("engine") == ("InProcess" if engine else None)


def test_a_run_that_has_begun_on_beam_stays_there(tmp_path, small, monkeypatch):
    small["chunks"] = {"rounds": 2}
    graph, runs = fit_rounds.FitRounds.add_rounds, []

    def failing(self, root, arrays, first, last):
        runs.append(first)
        if len(runs) > 1:
            raise KeyboardInterrupt
        return graph(self, root, arrays, first, last)

    with monkeypatch.context() as patched:
        patched.setattr(fit_rounds.FitRounds, "add_rounds", failing)
        assert run(tmp_path / "job", small).code == 130
    refused = run(tmp_path / "job", small, ENGINE)
    assert refused.code == 2
    assert "this run was begun with Beam, so --runner=InProcess can't resume it" in refused.lines[-1]
    assert run(tmp_path / "job", small).code == 0


# Refusals.


def masked(job):
    job["trust"] = "masked"


def recurring(job):
    job["recurring"] = {"previous": "runs/before"}


def in_a_store(job):
    job["data"]["path"] = "s3://bucket/lake"


def server_in_a_store(job):
    job["server_data"] = {"path": "s3://bucket/server.parquet"}


def key_in_a_store(job):
    job["key_uri"] = "s3://bucket/key"


REFUSED = {
    masked: "trust: masked needs Beam",
    recurring: "recurring needs Beam",
    in_a_store: "data.path is in a store",
    server_in_a_store: "server_data.path is in a store",
    key_in_a_store: "key_uri is in a store",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda each: each.__name__)
def test_what_needs_beam_or_a_store_is_refused_by_name(tmp_path, small, change, monkeypatch):
    monkeypatch.setattr(local_rows.LocalRows, "shards", lambda *_: pytest.fail("files were listed"))
    change(small)
    refused = run(tmp_path / "job", small, ENGINE)
    assert (refused.code, REFUSED[change] in refused.lines[-1]) == (2, True), refused.err
    assert not (tmp_path / "job" / "out").exists()


@pytest.mark.parametrize(
    "flag", ["--direct_num_workers=4", "--cores=2", "--flink_master=host:8081", "--save_main_session"]
)
def test_flags_of_beam_beside_it_are_refused(tmp_path, small, flag):
    refused = run(tmp_path / "job", small, ENGINE, flag)
    assert (refused.code, f"{flag.partition('=')[0]} has no meaning" in refused.lines[-1]) == (2, True), refused.err


@pytest.mark.parametrize("job", sorted(WORDS))
def test_other_jobs_are_refused_by_name(job):
    word = WORDS[job]
    record = import_name(f"{word.module}:JOB")
    record = record.choose(word.example) if isinstance(record, JobChoice) else record
    assert record.in_process == word.in_process == (job in ("fit", "topics"))
    if not word.in_process:
        with pytest.raises(ConfigError, match=f"can't run {record.name}, which needs Beam"):
            options.check_in_process(record.name, options.beam_options([ENGINE]), record.in_process)


def test_a_fit_without_privacy_is_refused_by_name(tmp_path, small):
    pooled = {"experimental": True, "algorithm": "optimal", "data": small["data"], "n_clusters": 3}
    refused = run(tmp_path / "job", pooled, ENGINE)
    assert (refused.code, "--runner=InProcess can't run fit, which needs Beam" in refused.lines[-1]) == (2, True)


@pytest.mark.parametrize("name", ["inprocess", "INPROCESS", "InProcess"])
def test_its_name_is_read_as_beam_reads_names(tmp_path, small, name):
    done = run(tmp_path / "job", small, f"--runner={name}")
    assert done.code == 0
    assert "without Beam" in done.err


def test_too_many_rows_are_refused_without_a_count_or_a_charge(tmp_path, small, monkeypatch):
    monkeypatch.setattr(local_rows, "MOST_ROWS", N_ROWS - 1)
    monkeypatch.setattr(local_rows, "read_blocks", lambda *_: pytest.fail("rows were read"))
    refused = run(tmp_path / "job", charged(tmp_path / "job", small), ENGINE)
    assert refused.code == 2
    assert refused.lines[-1] == (
        "dapple: data.path has more than 399 rows, the limit of --runner=InProcess; leave the flag out."
    )
    assert [kind for kind, _ in entries(tmp_path / "job")][-1] == "void"


def test_rows_that_do_not_fit_into_memory_are_refused_before_they_are_read(tmp_path, small, monkeypatch):
    monkeypatch.setattr(local_rows.machine, "has_room", lambda n_bytes: n_bytes < N_ROWS)
    monkeypatch.setattr(local_rows, "read_blocks", lambda *_: pytest.fail("rows were read"))
    refused = run(tmp_path / "job", small, ENGINE)
    assert (refused.code, "fit into memory" in refused.lines[-1]) == (1, True), refused.err


@pytest.mark.parametrize("rows", [[], [np.nan]], ids=["none", "invalid"])
def test_bad_rows_are_refused_as_on_beam(tmp_path, small, rows):
    points = np.array([[each] * 4 for each in rows]).reshape(len(rows), 4)
    if rows:
        pq.write_table(lake.table_of(points), tmp_path / "lake" / "part-01.parquet")
    else:
        for each in (tmp_path / "lake").iterdir():
            pq.write_table(lake.table_of(points), each)
    refused = [run(tmp_path / name, small, *flags) for name, flags in {"beam": (), "loop": (ENGINE,)}.items()]
    assert refused[0].code == refused[1].code == 2
    assert refused[0].lines[-1] == refused[1].lines[-1]


# Attacks.


def test_a_second_run_into_the_folder_is_refused(tmp_path, small, monkeypatch):
    said, write = [], fit_rounds.write_model

    def meanwhile(*given):
        said.append(lake.run_job(small, tmp_path / "job", "--run_id", "other", ENGINE))
        return write(*given)

    monkeypatch.setattr(fit_rounds, "write_model", meanwhile)
    assert run(tmp_path / "job", small, ENGINE).code == 0
    assert said[0].code == 2
    assert "--output must be used by one run at a time" in said[0].lines[-1]


def test_a_file_that_changes_between_rounds_is_not_read_again(tmp_path, small, key, monkeypatch):
    small["key_uri"] = key
    assert run(tmp_path / "before", small, ENGINE).code == 0
    rounds, measure = [], in_process.loop.measure

    def replacing(round_, block: ClientBlock, state):
        if not rounds:
            lake.write_lake(tmp_path / "lake", lake.mixture(N_ROWS, seed=5), n_files=2, row_group_size=100)
        rounds.append(round_)
        return measure(round_, block, state)

    with monkeypatch.context() as patched:
        patched.setattr(in_process.loop, "measure", replacing)
        assert run(tmp_path / "during", small, ENGINE).code == 0
    assert lake.released(tmp_path / "before" / "out") == lake.released(tmp_path / "during" / "out")


def test_a_file_that_changes_after_the_listing_is_refused(tmp_path, small, monkeypatch):
    listed = local_rows.list_shards

    def replacing(*given):
        shards = list(listed(*given))
        lake.write_lake(tmp_path / "lake", lake.mixture(N_ROWS, seed=5), n_files=2, row_group_size=100)
        return iter(shards)

    monkeypatch.setattr(local_rows, "list_shards", replacing)
    refused = run(tmp_path / "job", small, ENGINE)
    assert (refused.code, "was changed after the job listed it" in refused.lines[-1]) == (2, True)


def test_rounds_that_are_not_audited_never_see_rows(tmp_path, small, monkeypatch):
    monkeypatch.setattr(local_rows.LocalRows, "shards", lambda *_: pytest.fail("files were listed"))
    where = fit_rounds.FitRounds._where_it_runs
    monkeypatch.setattr(
        fit_rounds.FitRounds,
        "_where_it_runs",
        lambda self, round_: where(self, round_)._replace(step=lambda state, releases: state),
    )
    refused = run(tmp_path / "job", small, ENGINE)
    assert (refused.code, "got the function" in refused.lines[-1]) == (4, True), refused.err
