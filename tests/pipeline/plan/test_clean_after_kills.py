"""Folders of runs that were killed anywhere: `clean` removes all of them."""

import json

import pytest

from tests.scenes import crashes, lake, ledgers
from tests.scenes.crashes import Point

KEY = bytes(range(32))
POINTS = [
    Point("dapple_dp.transforms.tables.listing:write_listing", after=True),
    Point("dapple_dp.pipelines.tables.client_staging:_any_split", after=True),
    Point("dapple_dp.pipelines.tables.prepare:group", after=True),
    Point("dapple_dp.transforms.core.noise:draw_release"),
]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_nothing_is_left(tmp_path, point):
    place = ledgers.Place(tmp_path, epsilon=1000.0, unit="client")
    before = {path.name for path in tmp_path.iterdir()} | {"out.yaml", "line"}
    words = place.words("out", "run")
    assert crashes.run(words, str(tmp_path / "line"), key=KEY, point=point) == -9
    assert (tmp_path / "out.partial-run.clients").exists()
    words = ("clean", str(tmp_path), "--delete", "--abandon", "--hours", "0", "--ledger", place.ledger.path)
    done = lake.run_command(*words)
    assert done.code == 0, done.err
    assert len(json.loads(done.out.splitlines()[-1])["deleted"]) == 2
    assert {path.name for path in tmp_path.iterdir()} == before
