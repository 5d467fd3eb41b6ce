"""Memory of runs: cases by hand, and the law of the noise."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE, Memory
from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.recurring.memory import drift_scores, memory_of, most_runs, recalled


def run_of(mean, count, origin=0.0, sums_stddev=1.0, counts_stddev=1.0):
    """One run with one cluster in one dimension."""
    sums = np.array([[(mean - origin) * count]])
    noisy = NoisyMeans(sums, np.array([float(count)]), sums_stddev, counts_stddev)
    return memory_of(noisy, np.array([[float(mean)]]))


def test_by_hand():
    """Weights 1/2 and 1: sums around 0 are 5 and 40, counts 5 and 10; so the mean is 45 / 15."""
    memory = run_of(1.0, 10).then(run_of(4.0, 10, origin=3.0), 9)
    found = recalled(memory, 2.0)
    np.testing.assert_allclose(found.means, [[3.0]])
    np.testing.assert_allclose(found.counts, [15.0])
    np.testing.assert_allclose(found.counts_stddev, np.sqrt(1.25))
    np.testing.assert_allclose(found.shares[:, 0], [0.5 / 15.0, 1.0 / 15.0])
    # Sums: 1.25 / 15^2. Counts: (0.5 (0 - 3) / 15)^2 + (3 - 3)^2.
    np.testing.assert_allclose(found.variances(memory), [1.25 / 225 + 0.01])


def test_a_memory_of_one_run_is_that_run():
    memory = run_of(1.0, 10).then(run_of(4.0, 20, origin=3.0), 9)
    np.testing.assert_allclose(recalled(memory, 1.0).means, [[4.0]])


def test_old_runs_are_forgotten():
    memory = run_of(0.0, 10)
    for mean in range(1, 5):
        memory = memory.then(run_of(float(mean), 10), 3)
    assert len(memory) == 3
    np.testing.assert_allclose(memory.origins[:, 0, 0] + memory.sums[:, 0, 0] / 10, [2.0, 3.0, 4.0])
    assert most_runs(30) == 240


def test_counts_near_their_noise_are_not_known():
    memory = run_of(1.0, 4, counts_stddev=1.0).then(run_of(1.0, 0, counts_stddev=1.0), 9)
    assert not recalled(memory, 3.0).known.any()
    assert np.isnan(drift_scores(memory, 3.0, 1.0, 1.0)).all()


def series(rng, n_runs, *, truth, rows=2000, wander=2.0, chance=0.0, moves=()):
    """Runs whose sums are measured from places that wander around the true means."""
    memory, shape = None, truth.shape
    for index in range(n_runs):
        origins = truth + rng.normal(0.0, wander, shape)
        means = truth + (moves[index] if moves else 0.0) + chance * rng.normal(0.0, 1.0, shape) / np.sqrt(rows)
        sums = (means - origins) * rows + rng.normal(0.0, 30.0, shape)
        counts = rows + rng.normal(0.0, 5.0, shape[0])
        noisy = NoisyMeans(sums, counts, 30.0, 5.0)
        one = memory_of(noisy, origins + noisy.means)
        memory = one if memory is None else memory.then(one, 999)
    return memory


def test_the_noise_of_a_memory_is_the_stated_one():
    """4,000 clusters: squared errors over their stated expectation add up to a chi-squared of 12,000 freedoms, wide by
    1.3%."""
    truth = np.random.default_rng(1).normal(0.0, 5.0, (4000, 3))
    memory = series(np.random.default_rng(2), 90, truth=truth)
    found = recalled(memory, 30.0)
    squared = ((found.means - truth) ** 2).sum(axis=1) / found.variances(memory)
    assert abs(squared.mean() - 1.0) < 0.06


def test_the_variance_of_a_long_memory_is_the_predicted_one():
    """With noise of sums only and a fixed place, (1 - l) / (1 + l) of one run's for l = 1 - 1 / 30: one in 59."""
    truth = np.zeros((1, 2))
    memory = series(np.random.default_rng(3), 600, truth=truth, wander=0.0, rows=10**7)
    one = recalled(memory, 1.0).variances(memory)
    np.testing.assert_allclose(recalled(memory, 30.0).variances(memory) / one, 1.0 / 59.0, rtol=0.01)


def test_drift_scores_are_standard_normal_where_only_noise_moved():
    """KS distance at p = 1e-6 of 3,000 scores: 0.049, and the cube root's own error of 0.01."""
    truth = np.random.default_rng(4).normal(0.0, 5.0, (3000, 8))
    memory = series(np.random.default_rng(5), 60, truth=truth)
    scores = drift_scores(memory, 30.0, 5.0, 0.0)
    assert scipy.stats.kstest(scores, "norm").statistic < 0.059
    halved = Memory(
        origins=memory.origins,
        sums=memory.sums,
        counts=memory.counts,
        sums_stddevs=0.7 * memory.sums_stddevs,
        counts_stddevs=0.7 * memory.counts_stddevs,
    )
    assert scipy.stats.kstest(drift_scores(halved, 30.0, 5.0, 0.0), "norm").statistic > 0.3


def test_chance_among_rows_gives_no_false_alarms_and_a_walk_is_seen():
    """Rows spread by 1 in all of 4 directions together; the bound takes 1 in each. A step of 0.1 spreads is 45 standard
    errors of five runs."""
    truth = np.zeros((2000, 4))
    calm = series(np.random.default_rng(6), 60, truth=truth, chance=0.5, wander=0.1)
    assert (drift_scores(calm, 30.0, 5.0, 1.0) > MEMORY_DRIFT_SCORE).mean() < 1e-3
    moves = [0.0] * 55 + [0.1] * 5
    walked = series(np.random.default_rng(7), 60, truth=truth, chance=0.5, wander=0.1, moves=moves)
    assert (drift_scores(walked, 30.0, 5.0, 1.0) > MEMORY_DRIFT_SCORE).all()


def table():
    memory = run_of(1.0, 10).then(run_of(4.0, 20, origin=3.0), 9)
    return memory, memory.table((7,))


def test_a_table_brings_it_back():
    memory, written = table()
    back = Memory.from_table(written, (7,), 1)
    for name in ("origins", "sums", "counts", "sums_stddevs", "counts_stddevs"):
        np.testing.assert_array_equal(getattr(back, name), getattr(memory, name))
    assert written.column("age").to_pylist() == [0, 1]


def changed(written, name, values):
    index = written.schema.get_field_index(name)
    return written.set_column(index, written.schema.field(index), pa.array(values, written.schema.field(index).type))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("age", [0, 2]),
        ("cluster", [7, 8]),
        ("noisy_sum", [[1.0], [1.0, 2.0]]),
        ("noisy_sum", [[1.0], [float("nan")]]),
        ("origin", [[], []]),
        ("noisy_count", [1.0, float("inf")]),
        ("sum_stddev", [1.0, 0.0]),
        ("count_stddev", [-1.0, 1.0]),
    ],
)
def test_another_table_is_refused(name, values):
    with pytest.raises((MalformedError, ValueError)):
        Memory.from_table(changed(table()[1], name, values), (7,), 1)


def test_a_table_of_nothing_or_of_other_clusters_is_refused():
    for numbers, rows in (((7,), 0), ((7, 8), 2), ((8,), 2)):
        with pytest.raises(MalformedError):
            Memory.from_table(table()[1].slice(0, rows), numbers, 1)
