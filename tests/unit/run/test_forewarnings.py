"""Warnings before anything is read or spent, and that every job says it."""

import json

import pytest

from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.command.words import WORDS
from dapple_dp.pipelines.jobs.forewarnings import forewarnings, plural
from dapple_dp.schemas.kmeans.fit_config import validated
from tests.scenes import lake

SPENDING = ("fit", "topics", "profile", "encode", "clustered_fl", "upload", "unmask")


def said(**privacy):
    return forewarnings(
        validated(lake.job("lake", None, **{f"privacy__{name}": each for name, each in privacy.items()}))
    )


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({}, []),
        ({"epsilon": 10.0, "delta": 1e-3}, []),
        ({"epsilon": 10.5}, ["epsilon 10.5 is high"]),
        (
            {"epsilon": 100, "delta": 0.1},
            ["epsilon 100 is high", "delta 0.1 is larger than 0.001: choose one well below"],
        ),
    ],
)
def test_large_numbers_are_warned_of(privacy, words):
    found = said(**privacy)
    assert len(found) == len(words)
    assert all(text.startswith(start) for text, start in zip(found, words, strict=True))


@pytest.mark.parametrize(("rows", "warned"), [(10_000, False), (9_999_999, True)])
def test_delta_is_compared_with_a_public_number_of_rows(rows, warned):
    settings = validated(lake.job("lake", None, data__public_rows=rows, privacy__delta=1e-5))
    found = forewarnings(settings)
    assert bool(found) == warned
    assert all(f"1 / the public number of rows ({rows:,})" in text for text in found)


@pytest.mark.parametrize("name", WORDS)
def test_jobs_that_spend_have_something_to_compare(name):
    settings = WORDS[name].loaded(WORDS[name].example)
    assert (forewarnings(settings) is not None) == (name in SPENDING)


def test_they_are_said_before_a_run_is_refused(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    (tmp_path / "job.yaml").write_text(json.dumps(lake.job("lake", None, privacy__epsilon=100.0, privacy__delta=0.1)))
    code = command.main(["fit", f"--config={tmp_path}/job.yaml", f"--output={tmp_path}/out"])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert [line.split()[2] for line in lines[:2]] == ["epsilon", "delta"]
    assert all(line.startswith("dapple: warning: ") for line in lines[:2])
    assert "--output must be a new or empty folder" in lines[2]


def test_one_thing_is_not_plural():
    assert (plural(1, "round"), plural(2, "round"), plural(0, "warning")) == ("1 round", "2 rounds", "0 warnings")
