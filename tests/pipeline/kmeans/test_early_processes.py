"""Processes that add up start before the graph is built, by the sizes of the files, and only for jobs that ask them."""

import os
import pickle

import pytest

from pipelines.kmeans.fit_rounds import FitRounds
from tests.scenes import lake
from transforms.rounds.sum_processes import CREWS


@pytest.fixture
def asked(monkeypatch):
    """Bytes of rows by which processes were asked for before there was a graph, and what they were told."""
    found = []
    building = []
    of_run, add_rounds = CREWS.of_run, FitRounds.add_rounds

    def recorded(limits, n_bytes, ahead=None):
        if not building:
            found.append((n_bytes, ahead))
        return of_run(limits, n_bytes, ahead)

    monkeypatch.setattr(CREWS, "of_run", recorded)
    monkeypatch.setattr(FitRounds, "add_rounds", lambda *args: building.append(1) or add_rounds(*args))
    return found


def test_a_fit_knows_the_sizes_of_its_files_before_its_graph(tmp_path, asked):
    """The source that a graph is given does not: it names the listing only."""
    path = lake.write_lake(tmp_path / "lake", lake.mixture(90), n_files=3)
    job = lake.job(path, lake.write_server(tmp_path / "server.parquet"), "record")
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    ((n_bytes, ahead),) = asked
    assert n_bytes == 2 * sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
    assert len(pickle.dumps(ahead)) < 1 << 12


def test_masked_messages_ask_no_process(tmp_path, asked):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(90))
    job = lake.job(path, lake.write_server(tmp_path / "server.parquet"), "record")
    outcome = lake.run_job(job | {"trust": "masked"}, tmp_path)
    assert outcome.code == 0, outcome.err
    assert asked == []
