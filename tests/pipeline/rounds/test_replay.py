"""Bundles that run again draw nothing new: one release, one noise, and no noise in two places."""

import itertools
import secrets
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.transforms.core import noise
from tests.scenes import lake

REPEATS = 2
REPLAY = (f"--direct_runner_bundle_repeat={REPEATS}",)
N_ROWS = 120
OTHER_KEY = bytes(range(32))


class Draw(NamedTuple):
    """One call of the noise stage for one release, as the worker saw it."""

    path: str
    exact: NDArray[np.int64]
    values: NDArray[np.int64]

    @property
    def noise(self):
        return self.values - self.exact


class Recorder:
    """Stands where the noise is drawn and keeps every draw, also those whose output a runner throws away."""

    def __init__(self):
        self.draws = []
        self._draw_release = noise.draw_release

    def __call__(self, key, plan, exact_sum):
        releases = self._draw_release(key, plan, exact_sum)
        ends = np.cumsum([each.values.size for each in releases])
        for release, exact in zip(releases, np.split(exact_sum, ends[:-1]), strict=True):
            self.draws.append(Draw(release.path, exact.copy(), release.values.ravel()))
        return releases

    def by_path(self):
        found = {}
        for draw in self.draws:
            found.setdefault(draw.path, []).append(draw)
        return found

    def first_draws(self):
        return [draws[0] for draws in self.by_path().values()]

    def repeated(self):
        """Paths with more than one distinct draw."""
        return {path for path, draws in self.by_path().items() if len({each.values.tobytes() for each in draws}) > 1}


def record(folder, *flags, unit="record", points=None, key=lake.KEY, planted=None):
    """Runs a job under a recorder; returns it and the job's result."""
    points = lake.mixture(N_ROWS) if points is None else points
    path = lake.write_lake(folder / "lake", points, np.arange(len(points)) // 10, n_files=2, row_group_size=40)
    settings = lake.job(path, lake.write_server(folder / "server.parquet"), unit, lloyd={"steps": 1})
    settings["key_uri"] = lake.write_key(folder / "key", key)
    settings["privacy"]["allocation"] = "tuned" if unit == "record" else "paper"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (planted or {}).items():
            patch.setattr(noise, name, value)
        recorder = Recorder()
        patch.setattr(noise, "draw_release", recorder)
        return recorder, lake.run_fit(settings, folder / "run", *flags)


@pytest.fixture(scope="module")
def record_level(tmp_path_factory):
    return record(tmp_path_factory.mktemp("record"), *REPLAY)


@pytest.fixture(scope="module")
def client_level(tmp_path_factory):
    return record(tmp_path_factory.mktemp("client"), *REPLAY, unit="client")


@pytest.fixture(params=["record_level", "client_level"])
def replayed(request):
    return request.getfixturevalue(request.param)


def share_nothing(left, right):
    """Returns whether two noises have no coordinate in common; of 10**6 coordinates of stddev > 2**18 one would."""
    return not np.equal(left[: len(right)], right[: len(left)]).any()


def test_every_replay_draws_the_same_noise(replayed):
    recorder, result = replayed
    draws = recorder.by_path()
    assert list(draws) == [each.path for each in result.model.releases]
    assert all(len(found) == REPEATS + 1 for found in draws.values())
    assert recorder.repeated() == set()


def test_the_release_is_the_one_that_was_drawn(replayed):
    recorder, result = replayed
    for release in result.model.releases:
        for draw in recorder.by_path()[release.path]:
            np.testing.assert_array_equal(release.values.ravel(), draw.values)
            assert np.count_nonzero(draw.noise) == draw.noise.size


def test_replays_see_the_same_exact_sum(replayed):
    for draws in replayed[0].by_path().values():
        assert len({each.exact.tobytes() for each in draws}) == 1


def test_a_planted_fresh_label_is_caught(tmp_path, monkeypatch):
    """Noise under a label of its own for every call: what the recorder must catch, it catches."""
    # A broadcast that is computed again with other noise would end the run before.
    monkeypatch.setattr("dapple_dp.transforms.rounds.bound_broadcast.can_bind", lambda _: False)
    recorder, _ = record(tmp_path, *REPLAY, planted={"_release_label": lambda *_: secrets.token_bytes(16)})
    assert recorder.repeated() == set(recorder.by_path())


def test_no_two_releases_of_a_run_share_noise(replayed):
    for left, right in itertools.combinations(replayed[0].first_draws(), 2):
        assert share_nothing(left.noise, right.noise), (left.path, right.path)


def test_one_more_row_draws_unrelated_noise(record_level, tmp_path):
    plain = record_level[0].first_draws()
    other, _ = record(tmp_path, points=np.vstack([lake.mixture(N_ROWS), np.zeros((1, 4))]))
    for left, right in zip(plain, other.first_draws(), strict=True):
        assert left.path == right.path
        assert share_nothing(left.noise, right.noise), left.path


def test_a_sum_one_unit_away_draws_unrelated_noise(replayed):
    for each in rounds_of(replayed[1]):
        exact = np.zeros(each.size, dtype=np.int64)
        close = exact.copy()
        close[-1] = 1
        here, again, there = (noise.draw_release(lake.KEY, each, total) for total in (exact, exact, close))
        for left, same, right in zip(here, again, there, strict=True):
            np.testing.assert_array_equal(left.values, same.values)
            assert share_nothing(left.values.ravel(), right.values.ravel()), left.path


def rounds_of(result):
    """The rounds of a run, rebuilt from what it released."""
    rounds = {}
    for release in result.model.releases:
        rounds.setdefault(release.path.rpartition("/")[0], []).append(release.plan)
    return [RoundPlan(path=path, releases=tuple(plans)) for path, plans in rounds.items()]


def test_another_key_draws_unrelated_noise(record_level, tmp_path):
    plain = record_level[0].first_draws()
    other = record(tmp_path, key=OTHER_KEY)[0].first_draws()
    np.testing.assert_array_equal(plain[0].exact, other[0].exact)
    for left, right in itertools.product(plain, other):
        assert share_nothing(left.noise, right.noise), (left.path, right.path)


def test_a_planted_label_without_the_sum_is_caught(replayed, monkeypatch):
    """Noise that ignores the sum is the same for neighbors; the comparisons above would see it."""
    monkeypatch.setattr(noise, "_release_label", lambda path, *_: path.encode())
    each = rounds_of(replayed[1])[0]
    left, right = (noise.draw_release(lake.KEY, each, np.full(each.size, shift))[0].values for shift in (0, 1))
    assert not share_nothing(left, right - 1)
