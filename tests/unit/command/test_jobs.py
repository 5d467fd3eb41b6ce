"""All jobs of the command are records that go one way."""

import importlib

import pytest

from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.command.words import WORDS, spelled
from dapple_dp.pipelines.jobs.job import Job, JobChoice
from dapple_dp.pipelines.kmeans import fit
from dapple_dp.pipelines.run.flags import FLAGS
from dapple_dp.pipelines.trusted_zone import pooled_fit

FITS = {"feddp_kmeans": fit.JOB, "optimal": pooled_fit.JOB}


def record(name):
    return importlib.import_module(command.JOBS[name]).JOB


@pytest.mark.parametrize("name", command.JOBS)
def test_a_job_is_a_record_under_its_own_name(name):
    assert type(record(name)) in (Job, JobChoice)
    assert record(name).name == name


@pytest.mark.parametrize("name", command.JOBS)
def test_a_job_has_no_way_around(name, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("dapple_dp.pipelines.jobs.run_job.run_job", lambda job, argv: asked.append((job, list(argv))))
    config = tmp_path / "job.yaml"
    config.write_text(WORDS[name].example)
    given = {"--level": "1", "--least_size": "1", "--catch_up": "2026-01-02"}
    flags = (flag if FLAGS[flag].is_flag else f"{flag}={given.get(flag, 'x')}" for flag in WORDS[name].flags)
    words = [f"--config={config}", *flags]
    assert command.main([*spelled(name).split(), *words]) == 0
    assert asked == [(record(name), words)]
    assert not hasattr(importlib.import_module(command.JOBS[name]), "run")


def test_other_words_read_no_private_rows():
    others = {"init", "plan", "verify", "clean", "ledger", "party", "schema", "schedule", "completion"}
    assert set(command.COMMANDS) - set(command.JOBS) == others


@pytest.mark.parametrize("algorithm", FITS)
def test_settings_tell_which_fit_it_is(algorithm):
    assert record("fit").choose(f"algorithm: {algorithm}") is FITS[algorithm]
