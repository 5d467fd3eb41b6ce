"""A store that refuses every request for two minutes, in the middle of a job: the job waits and goes on by itself.

`tests/pipeline/masked/test_store_away.py` has short outages at every read and write of a party.
"""

import time

import pytest

from dapple_dp.schemas.masked.config import AGGREGATOR
from tests.scenes import brokers, lake, object_store
from tests.scenes import separate_parties as scene
from tests.scenes.separate_parties import HOSPITALS, SeparateParties

pytestmark = pytest.mark.nightly

pytest.importorskip("moto")
ROOT = f"s3://{object_store.BUCKET}"
AWAY = 120.0
DATES = ("2026-01-01", "2026-01-02", "2026-01-03")


@pytest.fixture
def store():
    with object_store.object_store() as found:
        yield found


def goes_away(store, method, part):
    """Has the store go away once, at a request for an object that has this part in its name; when that was."""
    began = []

    def before():
        if not began and store.asked[-1].method == method and part in store.asked[-1].path:
            began.append(time.monotonic())
        store.every = int(bool(began) and time.monotonic() - began[0] < AWAY)

    store.before = before
    return began


def waited(store, began):
    """Returns whether the store was away as long as it should be, and asked all the while, but not all the time."""
    return bool(began) and time.monotonic() - began[0] >= AWAY and 5 < store.refused < 1000


def test_a_stream_releases_all_windows_in_one_call(store, tmp_path):
    place = brokers.StreamPlace(tmp_path, windows=3)
    for day, date in enumerate(DATES):
        lake.write_lake(tmp_path / "lake" / f"dt={date}", lake.mixture(60, seed=day))
    rows = object_store.upload(str(tmp_path / "lake"), "lake")
    with brokers.equal_noise():
        assert place.stream("here", None, data=tmp_path / "lake").code == 0
        began = goes_away(store, "GET", f"dt={DATES[1]}/")
        outcome = place.stream("away", None, data=rows)
    assert outcome.code == 0, outcome.err
    assert waited(store, began)
    assert list(place.released("away")) == list(DATES)
    assert place.released("away") == place.released("here")


def test_each_party_of_a_federation_ends_with_the_result(store):
    with scene.open_folder() as folder:
        parties = SeparateParties(folder, store=ROOT, flags=("--late_minutes", "60"))
        began = goes_away(store, "PUT", "/exchange/01_")
        scene.everybody(parties)
        ends = parties.ends()
        assert {name: end.code for name, end in ends.items()} == dict.fromkeys(parties.names, 0), ends
        assert waited(store, began)
        assert ends[AGGREGATOR].summary["left_out"] == {}
        assert parties.result() == parties.alone(HOSPITALS)
