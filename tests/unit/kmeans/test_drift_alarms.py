"""The simulation of drift alarms is that of the job, and its interval covers what it should."""

import dataclasses

import numpy as np
import pytest

from benchmarks.continual import SETTINGS, key_of
from benchmarks.continual_windows import Contract, Epoch
from benchmarks.drift_alarms import Alarms, CachedEpoch, apart


@pytest.mark.parametrize("band", [1, 4])
def test_kept_sums_are_those_of_rows_that_are_read_again(band):
    """Bit for bit, after more windows than a release adds up, and where centers move."""
    setting = dataclasses.replace(SETTINGS[1], n_rows=300, n_clusters=3)
    means, rng = setting.means(0), np.random.default_rng(0)
    start = means + 0.05
    epochs = [kind(setting, start, Contract(9, memory=5, band=band)) for kind in (Epoch, CachedEpoch)]
    for index in range(9):
        rows = setting.rows(means + 0.01 * index, rng)
        for epoch in epochs:
            epoch.window(rows, None, key_of("test", index))
    read, kept = epochs
    assert np.array_equal(read.centers, kept.centers)
    for field in dataclasses.fields(read.memory):
        assert np.array_equal(getattr(read.memory, field.name), getattr(kept.memory, field.name))
    assert np.array_equal(read.scores(), kept.scores_within(0.5), equal_nan=True)
    assert not np.array_equal(kept.scores(), kept.scores_within(0.5), equal_nan=True)


def test_scores_that_go_together_count_as_fewer():
    """Independent scores count each; moving sums of five count about as one in five."""
    draws = np.random.default_rng(1).normal(size=(20, 404, 10))
    assert apart(draws) == 1.0
    sums = sum(draws[:, shift : shift + 400] for shift in range(5)) / 5**0.5
    assert apart(sums) == pytest.approx(5.0, abs=0.5)


def test_a_line_says_how_many_alarms_there_are():
    scores = np.full((1, 1000, 2), -1.0)
    scores[:, ::2] = 1.0
    scores[0, 7, 0], scores[0, 8, 0] = 9.0, np.nan
    assert Alarms(name="a", scores=scores).line.startswith("| a | 1,999 | 1 | 0.50 | 0.01 to 2.78 | 1.0 |")
