"""Windows of an epoch under masks: releases are those of the plain stream, and each role keeps one half of the sums."""

from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.scenes import lake
from tests.scenes.epochs import DATES, Place
from transforms.files.publish import RELEASES_FILE
from transforms.numerics.privacy import noise


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
    """Bit for bit: masks cancel in the combination, and kept sums are those of the rows that a plain stream reads."""
    plain, hidden = two_places(tmp_path, unit)
    with mock.patch("transforms.privacy.noise_stage.noise.draw_release", exact):
        for place in (plain, hidden):
            outcome = place.release(DATES[4])
            assert outcome.code == 0, outcome.err
    for index in range(5):
        assert released(plain, index) == released(hidden, index)
        assert any(np.any(values) for values in released(plain, index).values())
    assert len(list((tmp_path / "masked").glob("ledger*.sums/*/*"))) == 3
