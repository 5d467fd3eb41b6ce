"""`--dry_run=True` says what would be submitted, and leaves nothing: no charge, no folder, no key, no file."""

import hashlib
import json

import pytest
import yaml

from dapple_dp import api
from dapple_dp.pipelines.command.words import WORDS
from dapple_dp.pipelines.run import options
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.charge import Limit
from tests.released_bytes import CASES, FITS, Desk
from tests.scenes import lake, ledgers, on_dataflow

DRY = "--dry_run=True"
OTHERS = (
    *("stream", "prepare", "assign-plain", "evaluate-plain", "profile-client", "sweep", "masked_jobs/shared-record"),
    *("reports/shuffled", "clustered_fl/r_dpcfl"),
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("desk"))
    ledgers.new_ledger(desk.folder, Limit(epsilon=10.0, delta=1e-5), "rows")
    return desk


@pytest.fixture(params=["FnApiRunner", "PrismRunner", "PortableRunner", "DataflowRunner"])
def flags(request):
    """Nothing has to run: neither Prism, nor a job server, nor Google's cloud."""
    if request.param != "DataflowRunner":
        return (f"--runner={request.param}",)
    pytest.importorskip("google.cloud.dataflow")
    return on_dataflow.FLAGS


@pytest.fixture
def left(desk, tmp_path, monkeypatch):
    """Calls a job; what it said, after a look that everything is as it was: lake, ledger, keys, temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)

    def call(job, settings, *words, output="out"):
        config = tmp_path / "job.yaml"
        config.write_text(yaml.safe_dump({"experimental": True} | settings))
        before = files(desk.folder)
        outcome = lake.run_command(job, "--config", str(config), "--output", str(desk.folder / output), *words)
        assert files(desk.folder) == before
        # Beam leaves empty folders of its own.
        assert [each for each in files(tmp_path / "tmp") if each.is_file() or "dapple" in each.name] == []
        return outcome

    return call


def files(folder):
    """Every file and folder, with what is in it."""
    found = sorted(folder.rglob("*"))
    return {each: hashlib.sha256(each.read_bytes()).hexdigest() if each.is_file() else "" for each in found}


def with_ledger(desk, settings):
    return settings | {"ledger": str(desk.folder / "ledger.sqlite"), "data": settings["data"] | {"name": "rows"}}


@pytest.mark.parametrize("name", ["record", "grouped", "masked", "tree-client", "optimal"])
def test_a_fit_leaves_nothing(desk, left, flags, name):
    found = left("fit", FITS[name](desk), *flags, DRY)
    assert found.code == 0, found.err
    steps = json.loads(found.out)["steps"]
    runner = flags[0].partition("=")[2]
    assert f"dry run: fit would submit a pipeline of {steps} steps (" in found.lines[-1]
    assert found.lines[-1].endswith(f" kB) to {runner}; nothing was submitted, charged or written")
    assert set(json.loads(found.out)) == {"dry_run", "steps", "bytes"}


def test_a_charged_fit_is_not_charged(desk, left, flags):
    """Nor is anything reserved: the very run can be made afterwards."""
    found = left("fit", with_ledger(desk, FITS["record"](desk)), *flags, DRY, "--run_id", "monday")
    assert found.code == 0, found.err
    assert ledgers.kinds(ledgers.Ledger(str(desk.folder / "ledger.sqlite"))) == ["limit"]


def test_the_ledger_is_not_asked(desk, left):
    """Free budget is the subject of `dapple plan`."""
    settings = with_ledger(desk, FITS["record"](desk)) | {"ledger": str(desk.folder / "none.sqlite")}
    assert left("fit", settings, DRY).code == 0


@pytest.mark.parametrize("name", ["record", "masked"])
def test_no_key_is_made_where_none_is(desk, left, name):
    settings = FITS[name](desk) | {"key_uri": str(desk.folder / "no.key")}
    if name == "masked":
        settings["masked"] = {"secret_uri": str(desk.folder / "no.secret")}
    assert left("fit", settings, DRY).code == 0


def test_what_would_be_refused_is_refused(desk, left):
    (desk.folder / "full").mkdir(exist_ok=True)
    (desk.folder / "full" / "run.json").write_text("{}")
    found = left("fit", FITS["record"](desk), DRY, output="full")
    assert (found.code, "--output must be" in found.lines[-1]) == (2, True)
    found = left("fit", FITS["record"](desk), DRY, output="lake/out")
    assert (found.code, "must be outside of data.path" in found.lines[-1]) == (2, True)
    found = left("fit", FITS["record"](desk), DRY, "--runner=InProcess")
    assert (found.code, "--dry_run has no meaning for --runner=InProcess" in found.lines[-1]) == (2, True)
    found = left("fit", FITS["record"](desk) | {"experimental": False}, DRY, "--runner=DataflowRunner")
    assert (found.code, "write experimental: true into the job" in found.lines[-1]) == (2, True)


class TriedFirst(Desk):
    """Every job is run dry first, and must leave everything as it was.

    Attributes:
      tried: what the dry run of each word said.
    """

    tried = {}  # noqa: RUF012 - one desk

    def run(self, case, job, settings, *words):
        config = self.folder.parent / "dry.yaml"
        config.write_text(yaml.safe_dump(settings))
        places = words if "--exchange" in words else ("--output", str(self.folder / "runs" / case / job), *words)
        before = files(self.folder)
        self.tried[job] = lake.run_command(job, "--config", str(config), *places, DRY)
        assert files(self.folder) == before
        return super().run(case, job, settings, *words)


@pytest.mark.slow
def test_every_job_leaves_nothing(tmp_path):
    """Jobs of several parts, which follow from what is written meanwhile, are refused."""
    (tmp_path / "desk").mkdir()
    desk = TriedFirst(tmp_path / "desk")
    with lake.written_keys_draw():
        desk.run("topics", "topics", FITS["spherical"](desk))
        for case in OTHERS:
            run, name = CASES[case]
            run(desk, name)
    assert set(desk.tried) == set(WORDS)
    parts = {"stream", "sweep", "upload", "aggregate", "unmask"}
    assert {job for job, found in desk.tried.items() if found.code} == parts
    for job, found in desk.tried.items():
        assert ("--dry_run doesn't work for" if job in parts else "dry run: ") in found.lines[-1], found.err


def test_jobs_of_several_parts_are_refused(desk, left):
    settings = FITS["record"](desk)
    for name in ("algorithm", "key_uri"):
        del settings[name]
    del settings["privacy"]["epsilon"]
    settings["sweep"] = {"methods": {"rows": {"algorithm": "feddp_kmeans"}}, "epsilons": [2.0], "seeds": 1}
    found = left("sweep", settings, DRY)
    assert (found.code, "--dry_run doesn't work for sweep" in found.lines[-1]) == (2, True), found.err


def test_in_a_program_the_flag_is_refused(desk):
    with pytest.raises(ConfigError, match="--dry_run works only in commands such as `dapple fit`"):
        api.fit(validated(FITS["record"](desk)), options.beam_options([DRY]))


@pytest.mark.parametrize(("flag", "asked"), [((), False), ((DRY,), True), (("--dry_run=False",), True)])
def test_the_flag_is_read_as_beam_reads_it(flag, asked):
    """Beam takes every word for a yes, so that nothing is submitted; then nothing may be charged either."""
    assert options.is_dry_run(options.beam_options(flag)) is asked
