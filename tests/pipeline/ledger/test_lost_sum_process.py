"""A process that adds up rows is lost in the middle of a fit: a sentence, one charge, and the same bytes afterwards."""

import os
import signal
from unittest import mock

import pytest

from tests.scenes import lake, ledgers
from transforms.rounds import sum_processes
from transforms.rounds.sum_processes import Crew

KEY = bytes(range(32))


@pytest.fixture
def place(tmp_path):
    with mock.patch("secrets.token_bytes", return_value=KEY):
        yield ledgers.Place(tmp_path, epsilon=1000.0)


def fitted(place, name, ledger, cores):
    return lake.run_command(*place.words(name, "run", ledger=ledger.path), "--cores", str(cores))


@pytest.mark.parametrize("call", [1, 2])
def test_a_lost_process_ends_the_fit_which_can_be_taken_up(place, tmp_path, monkeypatch, call):
    (tmp_path / "plain").mkdir()
    alone = fitted(place, "whole", ledgers.new_ledger(tmp_path / "plain", ledgers.basic_limit(1000.0)), 1)
    assert alone.code == 0
    monkeypatch.setattr(sum_processes, "LEAST_BYTES", 0)
    original, crews = Crew.sum, []

    def summed(crew, *args):
        crews.append(crew)
        if len(crews) == call:
            os.kill(crew.others[0].pid, signal.SIGKILL)
        return original(crew, *args)

    with mock.patch.object(Crew, "sum", summed):
        lost = fitted(place, "out", place.ledger, 2)
    assert len(crews) == call
    assert lost.code == 1
    assert "got one that was killed" in lost.err
    assert "--cores" in lost.err
    assert not os.path.exists(place.path("out"))
    again = fitted(place, "out", place.ledger, 2)
    assert again.code == 0
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    assert lake.released(tmp_path / "out") == lake.released(tmp_path / "whole")
