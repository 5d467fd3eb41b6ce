"""Two launchers that start at the same moment, each a process of its own: one works, one says so, one charge."""

import json
import pathlib

import pytest

from dapple_dp.schemas.privacy.charge import Limit
from tests.pipeline.masked.test_masked_jobs import Parties
from tests.scenes import crashes, epochs, lake, ledgers

pytestmark = pytest.mark.slow

_TIMES = 4


def _launch(words: list[str], barrier, out: str) -> None:
    """A command that begins when the other one does."""
    with lake.keys_of_runs():
        barrier.wait(120)
        outcome = lake.run_command(*words)
    pathlib.Path(out).write_text(json.dumps([outcome.code, outcome.err.splitlines()[-1]]))


def together(folder: pathlib.Path, *commands: list[str]) -> list[tuple[int, str]]:
    """Exit code and last line of stderr of commands that started together, sorted."""
    barrier = crashes._CONTEXT.Barrier(len(commands))
    outs = [str(folder / f"outcome-{number}") for number in range(len(commands))]
    processes = [crashes.started(_launch, *each) for each in zip(commands, [barrier] * 9, outs, strict=False)]
    for process in processes:
        process.join(600)
        assert process.exitcode == 0
    return sorted(tuple(json.loads(pathlib.Path(out).read_text())) for out in outs)


def _kinds(place) -> list[str]:
    return [kind for kind in ledgers.kinds(place.ledger) if kind != "limit"]


def test_one_of_two_attempts_of_a_run_works(tmp_path):
    place = ledgers.Place(tmp_path)
    for number in range(_TIMES):
        words = place.words(f"out-{number}", f"run-{number}")
        (first, _), (second, said) = together(tmp_path, words, words)
        assert first == 0
        assert second == 0 or (second == 3 and "is still under way" in said), said
        assert _kinds(place) == ["reserve", "start", "commit"] * (number + 1)


@pytest.mark.parametrize("charged", [True, False])
def test_one_of_two_runs_to_the_same_output_works(tmp_path, charged):
    place = ledgers.Place(tmp_path)
    if not charged:
        del place.job["ledger"]
    for number in range(_TIMES):
        pair = [place.words(f"out-{number}", f"{name}-{number}") for name in ("a", "b")]
        (first, _), (second, said) = together(tmp_path, *pair)
        assert (first, second) == (0, 2)
        assert "--output must be" in said
        assert said.endswith(("; wait for it to end or choose another one.", "; choose another one."))
        assert not list(tmp_path.glob("*.partial-*"))
        assert _kinds(place) == ["reserve", "start", "commit"] * (number + 1) * charged


def test_one_of_two_aggregators_of_an_exchange_is_charged(tmp_path):
    """Each would draw other noise, so each attempt is charged: a second one must find the round closed before it is."""
    for number in range(_TIMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        with lake.keys_of_runs():
            parties = Parties(folder)
            ledger = ledgers.new_ledger(folder, Limit(epsilon=9.0, delta=1e-5), "homes")
            parties.aggregator(ledger=ledger.path, name="homes", unit="record", threshold=2)
            for step in (parties.unmask(), parties.upload(0), parties.upload(1)):
                assert step.code == 0, step.err
        words = ["aggregate", "--config", str(folder / "aggregate.yaml"), "--exchange", parties.exchange]
        (first, _), (second, said) = together(folder, words, words)
        assert first == 0
        assert (second, said.endswith(("each job its own folder.", "its sum is final."))) in [(2, True), (5, True)]
        assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit"]


def test_two_clients_jobs_of_one_exchange_do_not_overwrite_each_other(tmp_path):
    """A plan has one nonce. Messages of a client are those that were pinned first."""
    parties = Parties(tmp_path)
    exchange = pathlib.Path(parties.exchange)
    words = ["--config", str(tmp_path / "client-0.yaml"), "--exchange", str(exchange), "--released", parties.released]
    (first, _), (second, said) = together(tmp_path, ["unmask", *words], ["unmask", *words])
    assert first == 0
    assert second == 0 or (second == 5 and "plan.json must be written once" in said), said
    nonce = (exchange / "plan.json").read_bytes()
    assert parties.unmask().code == 0
    assert (exchange / "plan.json").read_bytes() == nonce
    upload = ["upload", *words, "--client", "client-0"]
    (first, said), (second, late) = together(tmp_path, upload, upload)
    # Both read in one folder, so the one that is slower may find its listing gone: it says so, and loses nothing.
    assert first == 0, said
    assert second == 0 or (second == 2 and "is missing or was changed" in late), late
    assert lake.run_command(*upload).code == 0
    assert len(list(exchange.rglob("*.sealed"))) == 1


def test_one_of_two_launchers_of_a_stream_goes_on(tmp_path):
    place = epochs.Place(tmp_path, unit="record", windows=2)
    for date in epochs.DATES[:2]:
        place.write(date, range(60))
    words = [*place.words(epochs.DATES[1]), "--once"]
    (first, _), (second, said) = together(tmp_path, words, words)
    assert first == 0, said
    assert second == 0 or (second == 3 and "is still under way" in said), said
    assert _kinds(place) == ["reserve", "start", "commit"] * 2
