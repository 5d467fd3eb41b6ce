"""Private state that is not the last one of its epoch: an older copy, that of another ledger, none; and who reads it.

What windows leave to later ones is read by the register of `pipelines/ledger/private_state.py`. The lists below are
made from the code, so that a new writer or reader of lasting state has to say here why it needs no register.
"""

import ast
import functools
import json
import pathlib
import shutil

import pytest
import yaml

from dapple_dp.pipelines.ledger.private_state import Register, State, digest_of
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.tables.arrivals.broker import TopicState
from dapple_dp.pipelines.tables.arrivals.records import Records
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.arrivals.consume import TopicClient
from tests.scenes import epochs, lake, ledgers
from tests.unit.arrivals.test_cuts import DATES, DAY, START, Log
from tests.unit.files.test_format_numbers import PACKAGES, ROOT, WRITERS

REGISTER = "pipelines/ledger/private_state.py"
READERS = {
    *("read_bytes", "read_text", "read_json", "read_table", "read_arrays", "read_model"),
    *("rows_of", "parquet_of", "open"),
}
"""Calls that read a file."""
_KEYS = "keys and nonces: the ledger's start names digests of what is derived from them"
_STAGED = "of one run, in its staging folder or a process: bound to settings, input, plan and the run's own key"
_PARTY = "a party's own answers, of which no ledger knows; see `tests/attacks/test_asked_twice.py`"
_RELEASED = "releases or other files that anybody may have, checked against the manifest that names them"
_GIVEN = "what a user gives: settings, rows, models, keys of signatures"
_HANDED = "does what its caller says"
PLACES = {
    _HANDED: (
        *("transforms/files/file_bytes.py", "transforms/files/new_file.py", "transforms/files/untrusted.py"),
        *("transforms/files/formats/arrays_file.py", "transforms/files/stores.py", "schemas/settings/yaml_text.py"),
        *("transforms/files/places/amazon.py", "transforms/files/places/beam.py", "transforms/files/local_store.py"),
    ),
    _KEYS: ("transforms/privacy/key_files.py", "pipelines/run/run_keys.py"),
    _STAGED: (
        *("transforms/files/checkpoint.py", "transforms/files/row_spill.py", "transforms/rounds/bound_broadcast.py"),
        *("transforms/rounds/staged_state.py", "pipelines/run/round_driver.py"),
        *("transforms/clustered_fl/judge_models.py", "transforms/clustered_fl/labeled_clients.py"),
        *("pipelines/kmeans/plan/file_digests.py", "pipelines/tables/client_staging.py", "pipelines/run/folder.py"),
        *("pipelines/tables/private_source.py", "transforms/tables/listing.py", "transforms/tables/group_clients.py"),
        *("transforms/tables/split_clients.py", "transforms/tables/counted_clients.py", "transforms/files/claims.py"),
        *("pipelines/trusted_zone/sweep.py", "pipelines/trusted_zone/sweep_folder.py", "pipelines/kmeans/fit.py"),
        *("pipelines/trusted_zone/evaluate.py", "transforms/trusted_zone/evaluate_models.py"),
        *("pipelines/trusted_zone/pooled_fit.py", "pipelines/profile/job.py", "pipelines/clustered_fl/job.py"),
        *("transforms/arrivals/consume.py", "pipelines/reports/decode.py"),
        *("transforms/trusted_zone/assign_rows.py", "dapple_dp/integrations/beam_yaml.py"),
    ),
    _PARTY: (
        *("transforms/masked/party_state.py", "transforms/masked/exchange_files.py"),
        *("pipelines/masked/clients_role.py", "pipelines/masked/unmask.py"),
    ),
    _RELEASED: (
        *("transforms/files/publish.py", "transforms/files/saved_model.py", "transforms/profile/publish.py"),
        *("transforms/reports/shuffle.py", "pipelines/reports/outputs.py"),
        *("pipelines/kmeans/report/files.py", "pipelines/kmeans/stream/windows_page.py", "pipelines/plan/verify.py"),
        *("pipelines/kmeans/stream/history.py", "pipelines/jobs/warned.py", "pipelines/jobs/windows.py"),
        *("pipelines/jobs/place.py", "pipelines/reports/windows.py", "pipelines/reports/source.py"),
        *("pipelines/ledger/job.py", "pipelines/jobs/lineage.py", "dapple_dp/integrations/table_out.py"),
        *("dapple_dp/estimator/run_files.py", "dapple_dp/estimator/notebook.py", "pipelines/kmeans/account.py"),
        *("transforms/privacy/plan_cache.py", "pipelines/reports/encode.py"),
    ),
    _GIVEN: (
        *("pipelines/run/options.py", "pipelines/kmeans/plan/fingerprint.py"),
        *("pipelines/plan/starter.py", "pipelines/plan/expected.py", "transforms/tables/prepared_files.py"),
        *("transforms/tables/on_launcher.py", "transforms/tables/file_seal.py"),
        *("dapple_dp/api.py", "dapple_dp/__init__.py", "pipelines/page/svg.py", "pipelines/masked/party.py"),
        "transforms/numerics/kernel/library.py",
        *("pipelines/tables/features.py", "transforms/rounds/machine.py", "pipelines/command/signal_flags.py"),
    ),
    "for the operator; no job reads it": ("pipelines/run/signals/exports.py",),
    "the register itself": (REGISTER,),
    "the ledger": ("pipelines/ledger/store.py", "pipelines/ledger/sqlite_file.py", "pipelines/ledger/postgres.py"),
    "writes and reads what the register knows": (
        *("pipelines/tables/epoch_clients.py", "pipelines/tables/arrivals/records.py"),
        "pipelines/kmeans/plan/previous_run.py",
    ),
    "writes to no file that stays": (
        *("pipelines/command/early.py", "transforms/profile/measure_clusters.py"),
        *("pipelines/command/main.py", "pipelines/jobs/run_job.py", "pipelines/page/axis.py"),
        *("pipelines/plan/leftovers.py", "pipelines/run/flags.py", "pipelines/masked/party_run.py"),
        *("pipelines/kmeans/stream/job.py", "pipelines/__main__.py"),
    ),
}
"""Files of the product that write or read files, by why what lasts there needs no register, or has one."""
REGISTERED = {
    "pipelines/tables/epoch_clients.py": {"before": "_register", "called": "untrusted.staged_refusal"},
    "pipelines/tables/arrivals/records.py": {"_raw": "register"},
    "pipelines/kmeans/plan/previous_run.py": {"load_previous": "manifest=digest_of(raw)", "_file": "manifest.files"},
}
"""Who reads files that the register knows, and what shows in its source that they are compared."""
NAMES = {"_offsets": "pipelines/tables/arrivals/records.py", ".rolls": "pipelines/ledger/store.py"}
"""Names that lead to private state beside a ledger or rows, and where they may be used."""


@functools.cache
def sources():
    """Each file of the product with its tree."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in paths]


def calls(tree):
    """The last word of all that is called; that of a store with its name before it, too."""
    names = [ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return {name.rpartition(".")[2] for name in names} | {name for name in names if name.startswith("STORE.")}


def test_all_writers_and_readers_of_files_are_listed():
    last = {name if name.startswith("STORE.") else name.rpartition(".")[2] for name in WRITERS} | READERS
    found = {path for path, tree in sources() if calls(tree) & last}
    listed = [path for paths in PLACES.values() for path in paths]
    assert len(listed) == len(set(listed))
    assert found - set(listed) == set(), "read what outlives a run by the register, or say here why not"
    assert set(listed) - found == set(), "these write and read no file any more"


@pytest.mark.parametrize("path", REGISTERED)
def test_what_the_register_knows_is_read_by_it(path):
    tree = ast.parse((ROOT / path).read_text())
    functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    reading = {
        name for name, each in functions.items() if calls(each) & READERS or "register.read" in ast.unparse(each)
    }
    assert reading == set(REGISTERED[path])
    for name, word in REGISTERED[path].items():
        assert word in ast.unparse(functions[name])


@pytest.mark.parametrize("name", NAMES)
def test_nobody_else_finds_private_state(name):
    paths = {path for path, _ in sources() if f'"{name}"' in (ROOT / path).read_text()}
    assert paths
    assert all(path.startswith(NAMES[name]) for path in paths)


def test_the_name_of_client_lists_is_used_by_the_client_list_and_named_by_a_copy_of_the_ledger():
    users = {path for path, _ in sources() if "CLIENT_LISTS" in (ROOT / path).read_text()}
    assert users == {NAMES[".rolls"], "pipelines/tables/epoch_clients.py", "pipelines/ledger/job.py"}


# Records of offsets, without a broker.

STATE = TopicState("id", 1, {"retention.ms": "-1"})


class Topic:
    """Windows of a topic whose records a ledger knows, released up to some window."""

    def __init__(self, folder: pathlib.Path, name: str = "own"):
        self.folder = folder / name
        self.folder.mkdir()
        self.ledger = ledgers.new_ledger(self.folder, Limit(epsilon=9.0, delta=1e-5))
        self.log = Log([[START + index * DAY + 5 for index in range(6)]])
        self.records = self.of(self.ledger.path)

    def of(self, ledger: str) -> Records:
        client = TopicClient("localhost:1", "visits", "")
        register = Register(ledger, "census", "e")
        return Records(client=client, folder=str(self.folder), epoch="e", days=1, first=DATES[0], register=register)

    def release(self, index: int) -> str:
        """Releases a window like a stream; returns the record's path."""
        self.records.register.look_again()
        before = self.records.kept(DATES[index - 1]) if index else None
        self.records.cut(self.log, STATE, DATES[index], before)
        about = {"name": "e", "index": index, "window": DATES[index]}
        self.ledger.reserve(f"e-{index}", ledgers.gaussian(9.0, delta=1e-6, epoch=about), {"nonce": ""})
        self.ledger.commit(f"e-{index}", {State.OFFSETS: self.records.digest(DATES[index])})
        return self.records.path(DATES[index])


@pytest.fixture
def topic(tmp_path):
    found = Topic(tmp_path)
    found.release(0)
    found.release(1)
    return found


REFUSED = "must be the record of offsets that this job wrote, got another one than the ledger's commit"


def test_records_that_nobody_touched_go_on(topic):
    assert pathlib.Path(topic.release(2)).exists()
    ranges = [topic.records.kept(date).ranges[0] for date in DATES[:3]]
    assert [(each.first, each.end) for each in ranges] == [(0, 1), (1, 2), (2, 3)]


def test_a_record_of_the_same_numbers_that_is_another_file_is_refused(topic, tmp_path):
    """The record is that of a rehearsal: same topic, same windows, another ledger."""
    other = Topic(tmp_path, "other")
    for index in range(2):
        shutil.copy(other.release(index), topic.records.path(DATES[index]))
    with pytest.raises(InputError, match=REFUSED):
        topic.release(2)


def test_a_record_whose_numbers_were_changed_is_refused(topic):
    """It joins the one after it, and moves messages from the window before into this one."""
    for index, (first, end) in enumerate(((0, 0), (0, 2))):
        path = pathlib.Path(topic.records.path(DATES[index]))
        content = json.loads(path.read_text())
        content["ranges"][0] |= {"first": first, "end": end}
        path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=REFUSED):
        topic.release(2)


def test_a_record_that_is_gone_is_not_asked_for_again(topic):
    path = pathlib.Path(topic.records.path(DATES[1]))
    path.unlink()
    topic.records.register.look_again()
    with pytest.raises(InputError, match="got nothing; restore it"):
        topic.records.cut(topic.log, STATE, DATES[1], topic.records.kept(DATES[0]))
    assert not path.exists()


def test_a_ledger_that_is_older_than_the_records_is_refused(topic):
    older = pathlib.Path(topic.ledger.path).read_bytes()
    topic.release(2)
    topic.release(3)
    pathlib.Path(topic.ledger.path).write_bytes(older)
    with pytest.raises(InputError, match=REFUSED):
        topic.release(4)


def test_the_digest_in_the_ledger_reveals_no_numbers(topic):
    """The same offsets have another record, and another digest, wherever they are written down."""
    path = pathlib.Path(topic.records.path(DATES[0]))
    before = path.read_bytes()
    path.unlink()
    unknown = Records(**{name: getattr(topic.records, name) for name in ("client", "folder", "epoch", "days", "first")})
    unknown.cut(topic.log, STATE, DATES[0], None)
    assert json.loads(before)["ranges"] == json.loads(path.read_bytes())["ranges"]
    assert digest_of(before) != digest_of(path.read_bytes())


# Whole streams.

WINDOWS = epochs.DATES


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """Two windows of a stream, and its content after the first one."""
    place = epochs.Place(tmp_path_factory.mktemp("stream"), unit="record")
    for date in WINDOWS[:4]:
        place.write(date, range(60))
    assert place.release(WINDOWS[0]).code == 0
    shutil.copytree(place.folder, place.folder.with_name("backup"))
    assert place.release(WINDOWS[1]).code == 0
    yield place
    shutil.rmtree(place.folder.with_name("backup"))


def copy_of(place, folder):
    """The same stream under another path: settings name the new place."""
    for name in ("january", "start", "lake"):
        shutil.copytree(place.folder / name, folder / name)
    shutil.copy(place.ledger.path, folder / "ledger.sqlite")
    found = object.__new__(epochs.Place)
    found.folder, found.ledger, found.job = folder, Ledger(str(folder / "ledger.sqlite")), place.job
    found.stream = place.stream | {"start": str(folder / "start")}
    found.job = place.job | {"data": place.job["data"] | {"path": str(folder / "lake")}}
    return found


def rehearsed(stream, folder):
    """The output of another ledger's stream of this name: same start, rows and calendar, other noise."""
    other = epochs.Place(folder / "other", unit="record", start=False)
    shutil.copytree(stream.folder / "start", other.folder / "start")
    for date in WINDOWS[:2]:
        other.write(date, range(60))
    assert other.release(WINDOWS[1]).code == 0
    return other.folder / "january"


def test_windows_of_a_rehearsal_do_not_stand_for_those_of_the_ledger(stream, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "own").mkdir()
    rehearsal, own = rehearsed(stream, tmp_path), copy_of(stream, tmp_path / "own")
    shutil.rmtree(own.folder / "january")
    shutil.copytree(rehearsal, own.folder / "january")
    entries = len(own.ledger.entries())
    outcome = own.release(WINDOWS[2])
    assert outcome.code == 3, outcome.err
    assert "must be the window before as it was released" in outcome.lines[-1]
    assert len(own.ledger.entries()) == entries


def test_a_ledger_that_is_older_than_its_outputs_goes_no_further(stream, tmp_path):
    own = copy_of(stream, tmp_path)
    shutil.copy(stream.folder.with_name("backup") / "ledger.sqlite", own.ledger.path)
    outcome = own.release(WINDOWS[2])
    assert outcome.code == 3, outcome.err
    assert "restore the output and the ledger of the same time" in outcome.lines[-1]
    told = lake.run_command("ledger", "verify", "--ledger", own.ledger.path, "--outputs", str(own.folder))
    assert told.code == 3
    assert f"{WINDOWS[1]}/run.json must be of a run that this ledger holds" in told.lines[-1]


def test_outputs_older_than_the_ledger_are_reported(stream, tmp_path):
    own = copy_of(stream, tmp_path)
    shutil.rmtree(own.folder / "january" / WINDOWS[1])
    outcome = own.release(WINDOWS[2])
    assert outcome.code == 3, outcome.err
    assert not (own.folder / "january" / WINDOWS[2]).exists()


def test_a_consistent_restore_goes_on_and_published_outputs_tell_it(stream, tmp_path):
    """From inside nobody can know; a reader who kept the outputs that were published can."""
    (tmp_path / "own").mkdir()
    own = copy_of(stream, tmp_path / "own")
    shutil.copytree(own.folder / "january", tmp_path / "published")
    backup = stream.folder.with_name("backup")
    shutil.copy(backup / "ledger.sqlite", own.ledger.path)
    shutil.rmtree(own.folder / "january")
    shutil.copytree(backup / "january", own.folder / "january")
    verify = ("ledger", "verify", "--ledger", own.ledger.path, "--outputs")
    assert own.release(WINDOWS[1]).code == 0
    assert json.loads(lake.run_command(*verify, str(own.folder / "january")).out)["outputs"] == 2
    told = lake.run_command(*verify, str(tmp_path / "published"))
    assert told.code == 3
    assert f"{WINDOWS[1]}/run.json must be of a run that this ledger holds" in told.lines[-1]


def test_a_stream_that_moved_with_all_that_it_left_goes_on(stream, tmp_path):
    own = copy_of(stream, tmp_path)
    outcome = own.release(WINDOWS[2])
    assert outcome.code == 0, outcome.err
    settings = yaml.safe_load((own.folder / "january.yaml").read_text())
    assert settings["ledger"] == own.ledger.path
