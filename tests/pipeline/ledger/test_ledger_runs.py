"""Jobs with a ledger: refused before they read, charged once, and never drawn twice for one charge."""

import fcntl
import json
import os
import pathlib
import shutil

import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp import api
from dapple_dp.pipelines.kmeans.plan.fingerprint import content_fingerprint
from dapple_dp.pipelines.ledger.spending import Reservation, spending
from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import BudgetExceededError, ConfigError, LedgerRefusedError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.files.stores import STORE
from tests.scenes import lake, ledgers


@pytest.fixture
def place(tmp_path):
    return ledgers.Place(tmp_path)


class Stopped(BaseException):
    """Ends a run as a signal would, but leaves the process."""


def interrupted(place, patch, run_id="run", output="out", **settings):
    """A run that ends when its rounds are over, before anything is committed; returns its staging folder."""

    def stop(*_):
        raise Stopped

    with patch.context() as patched:
        patched.setattr("dapple_dp.pipelines.kmeans.report.files.write_outputs", stop)
        with pytest.raises(Stopped):
            place.fit(output, run_id, **settings)
    return pathlib.Path(f"{place.folder / output}.partial-{run_id}")


def test_without_room_a_run_is_refused_before_it_looks_for_data(tmp_path):
    place = ledgers.Place(tmp_path, epsilon=0.5)
    shutil.rmtree(place.lake)
    outcome = place.fit()
    assert outcome.code == 3
    assert "the budget of census is too small for this run: 0 of epsilon 0.5" in outcome.err
    assert not list(tmp_path.glob("out*/**/*"))
    assert ledgers.kinds(place.ledger) == ["limit"]


def test_without_a_limit_or_a_name_nothing_runs(place):
    named = place.fit(data=place.job["data"] | {"name": "other"})
    assert (named.code, "data.name must be a data set with a limit, got other" in named.err) == (3, True)
    nameless = place.fit(data={name: value for name, value in place.job["data"].items() if name != "name"})
    assert (nameless.code, "data.name is required with a ledger" in nameless.err) == (2, True)
    missing = place.fit(ledger=str(place.folder / "none.sqlite"))
    assert (missing.code, "no ledger at " in missing.err) == (3, True)


def test_a_complete_id_returns_its_release_and_charges_nothing(place, monkeypatch):
    first = place.fit()
    assert first.code == 0
    before, whole = place.ledger.entries(), lake.released(place.folder / "out")
    (place.folder / "link").symlink_to(place.folder)
    shutil.rmtree(place.lake)
    again = place.fit()
    assert (again.code, again.out) == (0, first.out)
    monkeypatch.chdir(place.folder)
    for output in ("./out", "link/out", "./out/", "link/../out"):
        spelled = place.fit(output)
        assert spelled.code == 0
        assert lake.released(json.loads(spelled.out)["output"]) == whole
    elsewhere = place.fit("other")
    assert json.loads(elsewhere.out)["output"] == str(place.folder / "out")
    assert not (place.folder / "other").exists()
    assert place.ledger.entries() == before


def test_a_complete_id_of_another_job_or_without_release_is_refused(place):
    assert place.fit().code == 0
    other = place.fit(n_clusters=2)
    assert (other.code, "run_id run was reserved with another config" in other.err) == (3, True)
    (place.folder / "out").rename(place.folder / "moved")
    gone = place.fit()
    assert (gone.code, "the release of run" in gone.err) == (3, True)
    assert not (place.folder / "out").exists()
    assert place.spent() == 1


def test_without_run_id_every_run_is_charged(place):
    words = place.words("out", "unused")[:-2]
    assert lake.run_command(*words).code == 0
    words[words.index("--output") + 1] = place.path("out2")
    assert lake.run_command(*words).code == 0
    assert place.spent() == 2


def test_an_interrupted_run_goes_on_for_free_whatever_the_spelling(place, monkeypatch):
    staging = interrupted(place, monkeypatch)
    drawn, key = lake.released(staging), (staging / "run.key").read_bytes()
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start"]
    for path in pathlib.Path(place.lake).iterdir():
        os.utime(path, (1, 1))
    (place.folder / "link").symlink_to(place.folder)
    monkeypatch.chdir(place.folder)
    data = place.job["data"] | {"path": "./link/lake/"}
    server = {"path": "link/server.parquet"}
    again = place.fit("./link/out", data=data, server_data=server, ledger="link/./ledger.sqlite")
    assert again.code == 0, again.err
    assert lake.released(place.folder / "out") == drawn
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    assert key not in b"".join(path.read_bytes() for path in (place.folder / "out").iterdir())
    assert not staging.exists()


def _change_rows(place, staging):
    path = next(pathlib.Path(place.lake).iterdir())
    state = path.stat()
    pq.write_table(pq.read_table(path).slice(1), path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _change_server(place, staging):
    lake.write_server(place.folder / "server.parquet", lake.mixture(60, seed=98))


def _delete_key(place, staging):
    (staging / "run.key").unlink()


def _replace_key(place, staging):
    lake.write_key(staging / "run.key")


def _delete_staging(place, staging):
    shutil.rmtree(staging)


CHANGES = {
    "rows": (_change_rows, "input"),
    "server rows": (_change_server, ""),
    "deleted key": (_delete_key, "key_uri"),
    "replaced key": (_replace_key, "key"),
    "deleted staging": (_delete_staging, "key_uri"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_buys_no_second_draw(place, monkeypatch, change):
    staging = interrupted(place, monkeypatch)
    apply, named = CHANGES[change]
    apply(place, staging)
    for _ in range(2):
        outcome = place.fit()
        assert (outcome.code, "choose another run_id, which is charged again" in outcome.err) == (3, True)
        assert named in outcome.err
    assert not (place.folder / "out").exists()
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start"]


def test_other_settings_or_another_output_buy_no_second_draw(place, monkeypatch):
    interrupted(place, monkeypatch)
    for settings in ({"n_clusters": 2}, {"seed": 5}, {"privacy": place.job["privacy"] | {"epsilon": 1.0}}):
        assert "was reserved with another config" in place.fit(**settings).err
    assert "was reserved with another --output" in place.fit("other").err
    copied = place.folder / "copied"
    shutil.copytree(place.lake, copied)
    assert place.fit(data=place.job["data"] | {"path": str(copied)}).code == 3
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start"]


def test_a_key_of_ones_own_is_kept_and_one_made_for_the_run_goes(place, monkeypatch):
    lake.write_key(place.folder / "own.key")
    assert place.fit("out1", "run1", key_uri=str(place.folder / "own.key")).code == 0
    assert (place.folder / "own.key").exists()
    made = place.folder / "made.key"
    interrupted(place, monkeypatch, "run2", "out2", key_uri=str(made))
    assert made.exists()
    assert place.fit("out2", "run2", key_uri=str(place.folder / "." / "made.key")).code == 0
    assert not made.exists()
    interrupted(place, monkeypatch, "run3", "out3", key_uri=str(made))
    made.unlink()
    assert place.fit("out3", "run3", key_uri=str(made)).code == 3


def _stays(monkeypatch, name):
    """Has a key that cannot be deleted."""
    delete = STORE.delete

    def attempt(*paths):
        if any(path.endswith(name) for path in paths):
            raise OSError("not permitted")
        delete(*paths)

    monkeypatch.setattr(STORE, "delete", attempt)


def test_a_resumed_run_whose_key_stays_publishes_and_says_so(place, monkeypatch):
    made = place.folder / "made [1]?*.key"
    staging = interrupted(place, monkeypatch, key_uri=str(made))
    drawn = lake.released(staging)
    with monkeypatch.context() as patched:
        _stays(patched, made.name)
        again = place.fit(key_uri=str(made))
    assert again.code == 0, again.err
    assert json.loads(again.out)["keys_left"] == [str(made)]
    assert "could not be deleted; delete it by hand" in again.err
    assert made.exists()
    assert lake.released(place.folder / "out") == drawn
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    third = place.fit(key_uri=str(made))
    assert (third.code, "keys_left" in third.out) == (0, False)
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    assert lake.released(place.folder / "out") == drawn


def test_a_key_that_cannot_leave_the_staging_folder_is_waited_for(place, monkeypatch):
    """Published with the output it would reveal the noise; the run is committed, and published once the key can go."""
    staging = interrupted(place, monkeypatch)
    drawn = lake.released(staging)
    with monkeypatch.context() as patched:
        _stays(patched, "run.key")
        for _ in range(2):
            stuck = place.fit()
            assert (stuck.code, "could not be deleted after the run" in stuck.err) == (2, True)
            assert not (place.folder / "out").exists()
    assert place.fit().code == 0
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    assert lake.released(place.folder / "out") == drawn
    assert not (place.folder / "out" / "run.key").exists()


def test_masked_runs_resume_under_their_secret(place, monkeypatch):
    masked = {"trust": "masked", "masked": {"scheme": "shared_secret"}}
    staging = interrupted(place, monkeypatch, **masked)
    drawn, secret = lake.released(staging), (staging / "mask.secret").read_bytes()
    (staging / "mask.secret").write_bytes(bytes(range(32)))
    assert place.fit(**masked).code == 3
    (staging / "mask.secret").write_bytes(secret)
    assert place.fit(**masked).code == 0
    assert lake.released(place.folder / "out") == drawn
    assert not (place.folder / "out" / "mask.secret").exists()


def test_two_attempts_at_once_are_one(place, monkeypatch):
    staging = interrupted(place, monkeypatch)
    descriptor = os.open(staging, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    outcome = place.fit()
    assert (outcome.code, "is still under way" in outcome.err) == (3, True)
    os.close(descriptor)
    assert place.fit().code == 0


def test_input_that_cannot_be_used_costs_nothing(place):
    points = lake.mixture(30)
    points[3, 2] = float("nan")
    (path,) = [str(pathlib.Path(place.lake) / "bad.parquet")]
    pq.write_table(lake.table_of(points, [0] * 30), path)
    assert place.fit().code == 2
    assert ledgers.kinds(place.ledger)[-1] == "void"
    assert place.spent() == 0
    assert not list(place.folder.glob("out*/**/*"))
    os.unlink(path)
    assert place.fit().code == 0
    assert place.spent() == 1


def test_a_failure_after_noise_was_drawn_stays_charged(place, monkeypatch):
    interrupted(place, monkeypatch)
    assert place.spent() == 1
    with monkeypatch.context() as patched:
        patched.setattr("dapple_dp.pipelines.kmeans.fit.run_chunks", lambda *_: 1 / 0)
        assert place.fit("out2", "run2").code == 1
    assert ledgers.kinds(place.ledger)[-2:] == ["reserve", "start"]
    assert place.spent() == 2
    assert place.fit("out2", "run2").code == 0


def test_a_failure_before_the_key_costs_nothing(place, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("dapple_dp.transforms.privacy.key_files.create_key", lambda *_: 1 / 0)
        assert place.fit().code == 1
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "void"]
    assert not list(place.folder.glob("out.partial*"))


def test_declared_partitions_have_budgets_side_by_side(tmp_path):
    place = ledgers.Place(tmp_path, epsilon=2.0)
    for day in ("mon", "tue"):
        lake.write_files(tmp_path / "days" / f"dt={day}", [lake.table_of(lake.mixture(60))])
    base = {"path": str(tmp_path / "days"), "features": "x", "name": "census"}

    def run(name, day, **more):
        return place.fit(name, name, data=base | {"partitions": {"dt": day}} | more).code

    reason = {"disjoint_partitions": "one visit a person, ever"}
    assert [run("a", "mon", **reason), run("b", "tue", **reason)] == [0, 0]
    assert [run("c", "mon", **reason), run("d", "tue"), run("e", "wed")] == [3, 3, 3]
    assert place.spent() == 2


def test_two_folders_of_one_value_share_a_budget(tmp_path):
    """Hive writes the value `a b` as `a%20b`; another writer leaves the space, and a person may be in both folders."""
    place = ledgers.Place(tmp_path, epsilon=2.0)
    for folder in ("a b", "a%20b", "a%2520b"):
        lake.write_files(tmp_path / "sites" / f"site={folder}", [lake.table_of(lake.mixture(60))])
    base = {"path": str(tmp_path / "sites"), "features": "x", "name": "census", "disjoint_partitions": "one site each"}

    def run(name, site):
        return place.fit(name, name, data=base | {"partitions": {"site": site}}).code

    assert [run("a", "a b"), run("b", "a%20b"), run("c", "a%2520b")] == [0, 3, 0]
    assert place.spent() == 2


def test_partitions_that_are_not_declared_share_a_budget(tmp_path):
    place = ledgers.Place(tmp_path, epsilon=2.0)
    base = {"features": "x", "name": "census"}
    assert place.fit("a", "a", data=base | {"path": place.lake + "/part-00.parquet"}).code == 0
    assert place.fit("b", "b", data=base | {"path": place.lake + "/part-01*"}).code == 3


@pytest.mark.parametrize("more", [{}, {"partitions": {"dt": 1}, "table": {"format": "delta"}}])
def test_only_hive_folders_can_be_declared_disjoint(more):
    settings = {"path": "lake", "features": "x", "disjoint_partitions": "because"}
    with pytest.raises(ConfigError, match=r"data.partitions must name Hive folders"):
        rejection.check_config(DataConfig, settings | more)


def test_the_fingerprint_is_of_the_content(place):
    key, other = lake.write_key(place.folder / "key"), lake.write_key(place.folder / "other", bytes(range(32)))

    def found(digest="digest", key=key):
        return content_fingerprint(lake.planned(place.job), digest, key, beam_options([]), str(place.folder / "out"))

    before = found()
    for path in pathlib.Path(place.lake).iterdir():
        os.utime(path, (1, 1))
    assert found() == before
    assert found("other") != before
    assert found(key=other) != before
    path = next(pathlib.Path(place.lake).iterdir())
    path.rename(path.with_name("renamed.parquet"))
    assert found() != before


def test_a_job_with_checkpoints_of_its_own_goes_on_for_free(place):
    def attempt(same, number):
        about = {"ledger": place.ledger.path, "charge": ledgers.gaussian(5.0), "run": "run"}
        with spending(Reservation(**about, same=None if same is None else lambda: same)):
            if number == 0:
                raise Stopped

    with pytest.raises(Stopped):
        attempt("digest", 0)
    with pytest.raises(LedgerRefusedError, match="run_id run must be resumed with the same job"):
        attempt("other", 1)
    attempt("digest", 1)
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "commit"]
    with pytest.raises(LedgerRefusedError, match="choose another run_id"):
        attempt("digest", 2)


def test_the_python_api_charges_as_well(place):
    result = api.fit(validated(place.job))
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "commit"]
    assert place.ledger.entries()[1].body["charge"]["epsilon"] == result.privacy.epsilon
    place.ledger.set_limit("census", Limit(epsilon=2.0, delta=1e-5))
    with pytest.raises(BudgetExceededError):
        api.fit(validated(place.job))


def command(place, job, settings, output):
    config = place.folder / f"{job}.yaml"
    config.write_text(yaml.safe_dump(settings))
    return lake.run_command(job, "--config", str(config), "--output", place.path(output))


@pytest.mark.slow
def test_profiles_and_sweeps_are_charged(place):
    assert place.fit().code == 0
    about = {"data": place.job["data"], "ledger": place.job["ledger"]}
    profile = about | {"model": place.path("out"), "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}}
    refused = command(place, "profile", profile, "profile")
    assert (refused.code, "--basic_epsilon" in refused.err) == (3, True)
    place.ledger.set_limit("census", Limit(epsilon=10.0, delta=1e-5, basic_epsilon=1.0, basic_delta=1e-6))
    outcome = command(place, "profile", profile, "profile")
    assert outcome.code == 0, outcome.err
    sweep = place.job | {
        "sweep": {"methods": {"lloyds": {}, "best": {"algorithm": "optimal"}}, "epsilons": [0.5, 1.0], "seeds": 2}
    }
    outcome = command(place, "sweep", sweep, "sweep")
    assert outcome.code == 0, outcome.err
    jobs = [entry.body["charge"]["job"] for entry in place.ledger.entries() if entry.kind == "reserve"]
    assert jobs == ["fit", "profile", "sweep"]
    swept = place.ledger.entries()[-2].body["charge"]
    assert (len(swept["events"]), round(swept["epsilon"], 1), swept["delta"]) == (4 * 4, 3.0, pytest.approx(4e-6))
    place.ledger.set_limit("census", Limit(epsilon=2.0, delta=1e-5))
    assert command(place, "sweep", sweep, "sweep2").code == 3
    assert not (place.folder / "sweep2").exists()


def test_reports_are_charged_to_a_data_set_of_their_own(place):
    settings = {
        "data": {"path": place.lake, "features": "x", "client_id": "client_id", "name": "census"},
        "n_clusters": 3,
        "privacy": {"unit": "client", "epsilon": 4.0},
        "tree": {"radius": 10.0},
        "ledger": place.job["ledger"],
    }
    place.ledger.set_limit("census", ledgers.basic_limit(6.0))
    assert command(place, "encode", settings, "reports").code == 0
    assert command(place, "encode", settings, "reports2").code == 3
    outcome = place.fit(clipping={"client_rows": 5}, **_client(place))
    assert (outcome.code, "must protect against replace_one" in outcome.err) == (3, True)


def _client(place):
    return {
        "data": place.job["data"] | {"client_id": "client_id"},
        "privacy": place.job["privacy"] | {"unit": "client", "epsilon": 1.0},
    }


def test_an_attempt_that_lost_the_race_leaves_the_winners_release(place, monkeypatch):
    """The other attempt commits, and dies before it publishes, between this one's look at the ledger and its lock."""
    staging = interrupted(place, monkeypatch)
    take_up = RunFolder.take_up

    def late(folder):
        place.ledger.commit("run", {"manifest": "0" * 64})
        take_up(folder)

    before = sorted(path.name for path in staging.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "take_up", late)
        outcome = place.fit()
    assert (outcome.code, "is no longer reserved" in outcome.err) == (3, True)
    assert sorted(path.name for path in staging.iterdir()) == before


def test_an_attempt_that_finds_the_folder_taken_gives_nothing_back(place, monkeypatch):
    """Another attempt takes up the run as soon as this one has charged it."""
    staging = pathlib.Path(f"{place.folder / 'out'}.partial-run")
    take_up = RunFolder.take_up

    def taken(folder):
        staging.mkdir()
        (staging / "run.key").write_bytes(b"of the other attempt")
        descriptor = os.open(staging, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            take_up(folder)
        finally:
            os.close(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "take_up", taken)
        assert place.fit().code == 3
    assert ledgers.kinds(place.ledger) == ["limit", "reserve"]
    assert (staging / "run.key").exists()
