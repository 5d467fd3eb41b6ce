"""`dapple plan` of every job that pages, examples and schedules show, and `plan --accuracy` of every kind of them."""

import dataclasses
import json
import pathlib

import pytest
import yaml

from dapple_dp.pipelines.plan import expected
from dapple_dp.pipelines.plan.command_line import TOOLS, check_flags
from dapple_dp.pipelines.run.flags import read
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import example_jobs, lake, pages
from tests.scenes.ledgers import new_ledger

pytestmark = pytest.mark.slow

JOBS = list(example_jobs.jobs())


def kind_of(job):
    """Returns what the search for an epsilon meets: algorithm, unit and other sections, but no name or place."""
    encodings = sorted(each["kind"] for each in job.get("encode", {}).values())
    return job["algorithm"], job["privacy"].get("unit"), sorted(job.keys() - {"data", "ledger", "key_uri"}), encodings


SEARCHED = {str(kind_of(job)): index for index, (_, job) in reversed(list(enumerate(JOBS)))}.values()
"""Jobs of which an epsilon is searched for: the first of each kind."""


def flags_of(job):
    """Few units, and the width that only the rows would show."""
    units = ("--clients" if job["privacy"].get("unit", "client") == "client" else "--rows", "500")
    listed = isinstance(job["data"]["features"], str) and job.get("server_data", "none") == "none"
    return (*units, "--width", str(example_jobs.WIDTH)) if listed else units


def test_every_place_with_jobs_is_among_them():
    """Jobs in code are found where the code shows them."""
    places = {name.rpartition("-")[0] or name for name, _ in JOBS}
    tutorials = {f"docs/tutorials/{name}.md" for name in ("embeddings", "silos", "year")}
    examples = {"examples/census/job.yaml", "docs/how-to/run-a-federation.md", "schedule/job.yaml"}
    assert places >= {"docs/start/five-minutes.md", "docs/how-to/choose-bounds.md", *tutorials, *examples}


@pytest.mark.parametrize(("index", "job"), list(enumerate(job for _, job in JOBS)), ids=[name for name, _ in JOBS])
def test_an_example_is_planned(index, job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example_jobs.write_public(job)
    pathlib.Path("job.yaml").write_text(yaml.safe_dump(job))
    searched = index in SEARCHED
    words = ("--accuracy", "1") if searched else ()
    done = lake.run_command("plan", "--config", "job.yaml", *flags_of(job), *words)
    assert done.code == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert found["cost"]["mean"] >= 0.0
    assert ("accuracy" in found) is searched
    if searched:
        assert found["accuracy"]["epsilon"] is None or 0.0 < found["accuracy"]["epsilon"] <= 20.0


OTHERS = [(name, text) for name, _, text in pages.blocks("yaml") if name not in dict(JOBS)]


@pytest.mark.parametrize(("name", "text"), OTHERS, ids=[name for name, _ in OTHERS])
def test_a_job_of_another_word_is_refused_in_a_sentence(name, text, tmp_path):
    (tmp_path / "job.yaml").write_text(text)
    done = lake.run_command("plan", "--config", str(tmp_path / "job.yaml"))
    assert (done.code, done.err.count("\n"), "unexpected" in done.err) == (2, 1, False)


BY_COLUMN = {
    "algorithm": "dp_lloyd",
    "data": {"path": "lake", "features": ["age", "income"]},
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
}
CALENDAR = {"name": "2026", "column": "dt", "first": "2026-01-01", "windows": 7, "once": "A visit is written once."}
SCALED = {"lower": 0, "kind": "bounds", "to": "symmetric"}


@pytest.mark.parametrize("domain", [{"income": [0, 1000], "age": [0, 100]}, [[0, 100], [0, 1000]]])
def test_bounds_by_column_are_planned_as_the_box_they_are_mapped_to(domain, tmp_path):
    encode = {"age": SCALED | {"upper": 100}, "income": SCALED | {"upper": 1000}}
    found = []
    for more in ({"dp_lloyd": {"domain": domain}}, {"dp_lloyd": {"domain": [-1, 1]}, "encode": encode}):
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(BY_COLUMN | more))
        done = lake.run_command("plan", "--config", str(tmp_path / "job.yaml"), "--rows", "3000", "--accuracy", "0.5")
        assert done.code == 0, done.err
        found.append(json.loads(done.out.splitlines()[-1]) | {"seconds": 0, "sharp_edges": []})
    assert found[0] == found[1]
    assert 0.0 < found[0]["cost"]["without_noise"] < 2.0


def test_the_width_of_patterns_is_that_of_the_columns_they_stand_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = BY_COLUMN | {"data": {"path": "lake", "features": ["age", "lab_*"]}, "dp_lloyd": {"domain": [0, 1]}}
    pathlib.Path("job.yaml").write_text(yaml.safe_dump(job))
    done = lake.run_command("plan", "--config", "job.yaml")
    assert (done.code, "No Parquet or CSV file found at " in done.err) == (66, True)
    example_jobs.write_public(job)
    done = lake.run_command("plan", "--config", "job.yaml", "--rows", "3000")
    assert json.loads(done.out.splitlines()[-1])["releases"][-2]["shape"] == [3, 5]


@pytest.mark.parametrize("settings", [{"recurring": {"previous": "first"}}, {"stream": {"start": "first"}}])
def test_the_other_way_round_starts_as_the_job_does(settings, tmp_path, monkeypatch):
    """An epsilon is tried as a plan of the same job with that epsilon would be."""
    monkeypatch.chdir(tmp_path)
    job = BY_COLUMN | {"dp_lloyd": {"domain": [0, 1]}, **settings}
    if "stream" in job:
        job["stream"] = CALENDAR | job["stream"]
        job |= {"ledger": "ledger.sqlite", "data": job["data"] | {"name": "visits"}}
    example_jobs.write_public(job)
    planned = []
    for epsilon in (1.0, 0.1):
        pathlib.Path("job.yaml").write_text(yaml.safe_dump(job | {"privacy": job["privacy"] | {"epsilon": epsilon}}))
        given = check_flags(read(TOOLS["plan"], ["--config", "job.yaml", "--rows", "2000"])[0])
        planned.append(expected.Expected.of(expected._config("job.yaml")[0], given))
    found = planned[1].fit.simulated(planned[1].config, planned[1].public.points, 2000, draws=3)
    excess = found.mean / found.without_noise - 1.0
    assert expected._reaches(planned[0], 0.1, excess * 1.000001)
    assert not expected._reaches(planned[0], 0.1, excess * 0.999999)


def test_the_next_window_of_a_stream_costs_what_its_epoch_has_not_paid(tmp_path, monkeypatch):
    """An epoch is charged once: a budget that its first window has used up has room for the others."""
    monkeypatch.chdir(tmp_path)
    job = BY_COLUMN | {"dp_lloyd": {"domain": [0, 1]}, "stream": CALENDAR | {"start": "first"}}
    job |= {"ledger": "ledger.sqlite", "data": job["data"] | {"name": "visits"}}
    example_jobs.write_public(job)
    pathlib.Path("job.yaml").write_text(yaml.safe_dump(job))
    book = new_ledger(tmp_path, Limit(epsilon=1.05, delta=1.1e-6), "visits")
    given = check_flags(read(TOOLS["plan"], ["--config", "job.yaml", "--rows", "2000"])[0])
    planned = expected.Expected.of(expected._config("job.yaml")[0], given)
    charges = []
    for window in ("2026-01-01", "2026-01-02"):
        charge = planned.charge()
        charges.append(charge)
        assert (charge.epoch["window"], expected.Budget.of("ledger.sqlite", charge).refused) == (window, "")
        book.reserve(window, charge, {})
    first = charges[0]
    assert "was charged already" in expected.Budget.of("ledger.sqlite", first).refused
    other = dataclasses.replace(first, epoch=first.epoch | {"name": "2027"})
    assert "the budget of visits is too small" in expected.Budget.of("ledger.sqlite", other).refused
