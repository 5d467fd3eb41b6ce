"""Windows of an epoch under masks: releases are those of the plain stream, and each role keeps one half of the sums."""

import dataclasses
import json
import math
import pathlib
import shutil
import stat
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.kmeans.plan.epoch_halves import EpochHalves
from pipelines.ledger.store import Ledger, charges_of, limits_of
from pipelines.masked.clients_role import ClientsRole
from schemas.errors import ConfigError
from schemas.kmeans.stream_config import stream_config
from tests.scenes import lake
from tests.scenes.epochs import DATES, Place
from transforms.files import gate
from transforms.files.publish import RELEASES_FILE
from transforms.masked.window_halves import half_path, opened_half, sealed_half
from transforms.numerics.privacy import noise
from transforms.numerics.statistics import lattice
from transforms.privacy import ledger_filter


@pytest.fixture(autouse=True)
def _keys_of_runs():
    """Each window draws under a key derived from the kept one, as always; a ledger refuses one key for two runs."""
    with lake.keys_of_runs():
        yield


def masked(place, **section):
    """The same place, its job under masks and kept keys."""
    place.job |= {
        "trust": "masked",
        "key_uri": lake.write_key(place.folder / "noise.key", bytes(range(3, 35))),
        "masked": {"secret_uri": lake.write_key(place.folder / "clients.secret", bytes(range(7, 39)))} | section,
    }
    return place


def write_days(place):
    """Rows of five days, the fourth without any."""
    for day in (0, 1, 2, 4):
        place.write(DATES[day], range(day * 10, day * 10 + 40))


def exact(key, plan, exact_sum):
    """No noise."""
    return noise.releases_of(plan, exact_sum)


def released(place, index):
    rows = pq.read_table(place.folder / "january" / DATES[index] / RELEASES_FILE).to_pylist()
    return {row["path"]: row["values_lattice"] for row in rows}


def two_places(folder, unit):
    """A plain stream and one under masks, of the same rows and the same start."""
    for name in ("plain", "masked"):
        (folder / name).mkdir()
    plain = Place(folder / "plain", unit=unit, band=3)
    hidden = Place(folder / "masked", unit=unit, band=3, start=False)
    hidden.stream["start"] = plain.stream["start"]
    for place in (plain, hidden):
        write_days(place)
    return plain, masked(hidden)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_without_noise_releases_are_those_of_the_plain_stream(tmp_path, unit):
    """Bit for bit: masks cancel in the combination, and kept sums are those of the rows that a plain stream reads.

    Rows that come late, or go, after their window was released change nothing: its sum is kept. Nobody comes on the
    fourth day, which is released all the same.
    """
    plain, hidden = two_places(tmp_path, unit)
    with mock.patch("transforms.privacy.noise_stage.noise.draw_release", exact):
        assert plain.release(DATES[4]).code == hidden.release(DATES[1]).code == 0
        hidden.write(DATES[0], range(100, 140), name="late")
        shutil.rmtree(hidden.folder / "lake" / f"dt={DATES[1]}")
        outcome = hidden.release(DATES[4])
        assert outcome.code == 0, outcome.err
    for index in range(5):
        assert released(plain, index) == released(hidden, index)
        assert any(np.any(values) for values in released(plain, index).values())


def halves(place):
    """Files of both roles: (sums, masks), each by window."""
    return tuple(
        {path.name: path for path in pathlib.Path(f"{place.ledger.path}.{name}").glob("*/*")}
        for name in ("sums", "masks")
    )


@pytest.fixture(scope="module")
def january(tmp_path_factory):
    """Four windows of clients under both noises; each step of the graph runs twice, as on a runner that repeats it."""
    place = masked(Place(tmp_path_factory.mktemp("masked"), unit="client", band=3), noise_by="both")
    write_days(place)
    with lake.keys_of_runs():
        outcome = lake.run_command(*place.words(DATES[3]), "--direct_runner_bundle_repeat=2")
    assert outcome.code == 0, outcome.err
    return place


def test_each_role_keeps_its_halves_of_the_last_windows(january):
    """Three windows of each, for their owner only, and no file of the release has any of it."""
    for found in halves(january):
        assert sorted(found) == ["00001.sealed", "00002.sealed", "00003.sealed"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in found.values()} == {0o600}
        assert {stat.S_IMODE(path.parent.stat().st_mode) for path in found.values()} == {0o700}
    contents = [path.read_bytes() for found in halves(january) for path in found.values()]
    written = [path for path in (january.folder / "january").rglob("*") if path.is_file()]
    assert written
    for path in written:
        assert ".sealed" not in path.name
        assert not any(content[32:64] in path.read_bytes() for content in contents)
    assert not [path for path in (january.folder / "january").rglob("*") if "halves" in path.name]


def test_both_halves_together_are_the_exact_sums(january):
    """As the page says: whoever has both files and both keys has whole counts of clients, without noise."""
    config = validated_window(january, 3)
    found = EpochHalves.of(config)
    size = config.n_clusters * 5
    for index in (1, 2, 3):
        values = []
        for half in (found.sums, found.masks):
            refusal = gate.staged("half")
            content = gate.read_octets(half_path(half.folder, index), refusal)
            values.append(opened_half(half, index, content, refusal)[1])
        exact_sum = values[0] - values[1]
        counts = exact_sum[-config.n_clusters :] / lattice.SUM_UNITS
        assert exact_sum.shape == (size,)
        assert (counts >= 0.0).all()
        assert 1.0 <= counts.sum() <= 60.0 if index < 3 else not exact_sum.any()
        for each in values:
            assert np.abs(each / 2.0**63).max() > 0.2


def validated_window(place, index):
    """The fit of a window."""
    return stream_config(place.settings).window(index, str(place.folder / "january"))


def test_the_statement_says_who_holds_what(january):
    stated = january.json(3, "privacy.json")
    assert stated["trust"] == "masked"
    assert stated["masked"]["kept"]["windows"] == 3
    assert "exact sums of the last 3 windows" in stated["masked"]["kept"]["together"]
    page = (january.folder / "january" / DATES[3] / "report.html").read_text()
    assert "What is kept of the last windows" in page
    assert "the exact sums of the last 3 windows" in page
    assert stated["epoch"]["noise_by"] == "both"
    assert stated["epsilon"] <= 2.0
    rows = pq.read_table(january.folder / "january" / DATES[3] / RELEASES_FILE).to_pylist()
    planned = {event["path"]: event["noise_multiplier"] for event in stated["events"]}
    for row in rows:
        assert row["noise_multiplier"] == pytest.approx(math.sqrt(2.0) * planned[row["path"]], rel=1e-12)


def test_an_epoch_under_masks_is_charged_once(january):
    entries = Ledger(january.ledger.path).entries()
    assert [entry.kind for entry in entries].count("commit") == 4
    spent = ledger_filter.most_spent(limits_of(entries)["visits"], charges_of(entries, "visits"))
    stated = january.json(3, "privacy.json")
    assert spent.precision == pytest.approx(sum(event["noise_multiplier"] ** -2 for event in stated["events"]))


def test_a_plan_expects_the_same_with_and_without_masks(january, tmp_path):
    """Its simulation has no sums of earlier windows, and weighs rows as if they were in one place."""
    found = []
    for job in (january.settings, {**january.settings, "trust": "central", "masked": None}):
        settings = {name: value for name, value in job.items() if value is not None}
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump(settings))
        outcome = lake.run_command("plan", "--config", str(tmp_path / "plan.yaml"), "--clients", "500")
        assert outcome.code == 0, outcome.err
        found.append(json.loads(outcome.out.splitlines()[-1]))
    assert found[0]["stream"] == found[1]["stream"]
    different = {name for name in found[0] if found[0][name] != found[1].get(name)}
    assert different <= {"seconds", "sharp_edges"}
    assert "edge-halves" in str(found[0]["sharp_edges"])


def copy_of(place, folder):
    found = Place(folder, unit="client", band=3, start=False)
    shutil.copytree(place.folder, folder, dirs_exist_ok=True)
    found.stream["start"] = place.stream["start"]
    found.job["data"] = found.job["data"] | {"path": str(folder / "lake")}
    return masked(found, noise_by="both")


def _gone(place):
    halves(place)[0]["00002.sealed"].unlink()


def _swapped(place):
    sums, masks = halves(place)
    shutil.copy(sums["00003.sealed"], masks["00003.sealed"])


def _older(place):
    _, masks = halves(place)
    shutil.copy(masks["00002.sealed"], masks["00003.sealed"])


def _of_other_messages(place):
    half = dataclasses.replace(EpochHalves.of(validated_window(place, 3)).masks)
    halves(place)[1]["00003.sealed"].write_bytes(sealed_half(half, np.zeros(15, dtype=np.int64), bytes(32)))


def _no_key(place):
    (place.folder / "noise.key").unlink()


def _other_key(place):
    lake.write_key(place.folder / "clients.secret", bytes(range(9, 41)))


def _one_key(place):
    (place.folder / "noise.key").unlink()
    (place.folder / "noise.key").symlink_to(place.folder / "clients.secret")


def _central(place):
    del place.job["trust"], place.job["masked"]


def _less_noise(place):
    place.job["masked"] = place.job["masked"] | {"noise_by": "aggregator"}


HARM = [
    (_gone, 3, "must be the sums of window 2 of epoch january"),
    (_swapped, 3, "must be the masks of window 3 of epoch january"),
    (_older, 3, "must be the masks of window 3 of epoch january"),
    (_of_other_messages, 3, "got one of other messages than their sum"),
    (_no_key, 2, "key_uri must be a file that lasts as long as the epoch january"),
    (_other_key, 3, "must be the masks of window"),
    (_one_key, 2, "must be another file than key_uri, got one under two names"),
    (_central, 2, "must be the window of"),
    (_less_noise, 2, "must be the window of"),
]


@pytest.mark.parametrize(("harm", "code", "message"), HARM, ids=lambda each: getattr(each, "__name__", None))
def test_a_window_without_its_halves_or_keys_is_refused(january, tmp_path, harm, code, message):
    """Nothing is drawn for it, and no folder of it is left."""
    place = copy_of(january, tmp_path)
    harm(place)
    outcome = place.release(DATES[4])
    assert message in outcome.err
    assert outcome.code == code
    assert not (tmp_path / "january" / DATES[4]).exists()
    assert [entry.kind for entry in Ledger(place.ledger.path).entries()].count("start") == 4


def test_a_window_goes_on_when_its_half_is_restored_and_the_last_one_drops_them_all(january, tmp_path):
    place = copy_of(january, tmp_path)
    content = halves(place)[0]["00002.sealed"].read_bytes()
    path = halves(place)[0]["00002.sealed"]
    path.unlink()
    assert place.release(DATES[5]).code == 3
    path.write_bytes(content)
    outcome = place.release(DATES[5])
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["released"] == [DATES[4], DATES[5]]
    assert halves(place) == ({}, {})


REFUSED = [
    ({"scheme": "pairwise", "threshold": 2}, {}, "masked.scheme must be shared_secret for recurring.epoch"),
    ({"threshold": 2}, {}, "masked.threshold must be 1 for recurring.epoch"),
    ({"secret_uri": None}, {}, "masked.secret_uri must be given for recurring.epoch with trust masked"),
    ({}, {"key_uri": None}, "key_uri must be given for recurring.epoch with trust masked"),
    ({"noise_by": "clients", "corrupt": 0.0}, {}, "use recurring.memory alone"),
]


@pytest.mark.parametrize(("section", "settings", "message"), REFUSED)
def test_masks_that_an_epoch_cannot_have_are_refused(january, section, settings, message):
    job = january.settings | settings
    with pytest.raises(ConfigError, match=message):
        stream_config(job | {"masked": job["masked"] | {"noise_by": "aggregator"} | section})


def test_a_topic_is_not_masked(january):
    topic = {"servers": "localhost:9092", "topic": "visits"}
    with pytest.raises(ConfigError, match=r"stream\.kafka must be left out for trust masked"):
        stream_config(january.settings | {"stream": january.stream | {"kafka": topic}})


@pytest.mark.parametrize("job", ["upload", "unmask"])
def test_jobs_of_parties_release_no_windows(january, job):
    config = validated_window(january, 3)
    with pytest.raises(ConfigError, match=r"recurring\.epoch must be left out for this job"):
        ClientsRole.from_config(config, "exchange", "released", job)
