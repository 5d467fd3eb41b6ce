"""Rounds of k-prototypes on arrays: shares, shapes, and steps without noise against Huang's algorithm."""

import dataclasses
import math

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import ReleasePlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import RELATIVE_UNITS
from dapple_dp.transforms.kmeans.k_prototypes import merge, server
from dapple_dp.transforms.kmeans.k_prototypes import rounds as k_prototypes
from tests import second_accountant
from tests.unit.kmeans.test_k_prototypes_config import DATA, job

WIDTH = 7
"""Features of `job`: age, sex f and m, lab, ward 1 to 3."""
TINY = 1e-12


def planned(**settings):
    return validated(job(**settings))


def features(ages, sexes, labs, wards, length):
    """Rows of `job`; codes that are not listed leave zeros."""
    found = np.zeros((len(ages), WIDTH))
    found[:, 0], found[:, 3] = ages, labs
    for first, size, codes in ((1, 2, sexes), (4, 3, wards)):
        for row, code in enumerate(codes):
            if code < size:
                found[row, first + code] = length
    return found


def groups(config, n_rows=900, seed=0):
    """Three clusters of numbers and codes; each tenth row has other codes than its cluster, some not listed."""
    rng, which = np.random.default_rng(seed), np.arange(n_rows) % 3
    around = np.array([[-0.6, 0.5], [0.0, -0.5], [0.6, 0.5]])[which] + rng.normal(0.0, 0.05, (n_rows, 2))
    sexes, wards = np.array([0, 1, 0])[which], which.copy()
    sexes[::10], wards[::10] = rng.integers(0, 3, n_rows // 10), rng.integers(0, 4, n_rows // 10)
    return features(around[:, 0], sexes, around[:, 1], wards, config.k_prototypes.length), which


def released(config, state, points, spec, noise=TINY, offsets=None, rng=None):
    """The statistic of rows as releases, with Gaussian noise if it is not tiny."""
    vector, start, found = (
        k_prototypes.prototypes_statistic(ClientBlock(points, offsets), state.broadcast()),
        0,
        [],
    )
    for each in spec.releases:
        plan = ReleasePlan(spec=each, noise_multiplier=noise)
        part = vector[start : start + each.size]
        if rng is not None:
            part = part + np.rint(rng.normal(0.0, plan.noise_stddev, each.size)).astype(np.int64)
        found.append(Release(path=f"{spec.path}/{each.name}", plan=plan, values=part.reshape(each.shape)))
        start += each.size
    assert start == len(vector)
    return tuple(found)


def run(config, points, noise=TINY, offsets=None, seed=0):
    """All rounds, with the same noise multiplier in each."""
    specs = k_prototypes.round_specs(config, WIDTH, 0)
    state = state_before(config)
    rng = None if noise == TINY else np.random.default_rng(seed)
    steps = {"first": server.first_step, f"fine_{k_prototypes.FINE_ROUNDS - 1:02d}": server.merge_step}
    for spec in specs:
        step = steps.get(spec.path.rpartition("/")[2], server.prototypes_step)
        state = step(state, released(config, state, points, spec, noise, offsets, rng))
    return state


def state_before(config):
    """State before the first round."""
    return server.initial_state(config, np.zeros((0, WIDTH)), WIDTH)


def test_shares_add_up_and_shapes_are_those_of_features_and_cells():
    specs = k_prototypes.round_specs(planned(), WIDTH, 0)
    assert math.fsum(one.share for each in specs for one in each.releases) == pytest.approx(1.0)
    assert [each.path for each in specs] == [
        "k_prototypes/first",
        *(f"k_prototypes/fine_{step:02d}" for step in range(3)),
        *(f"k_prototypes/step_{step:02d}" for step in range(3)),
    ]
    sizes = [1, *[3 * server.FINE] * 3, *[3] * 3]
    # Cells of 2 and 3 listed codes, and of one for all others in each column.
    assert [[one.shape for one in each.releases] for each in specs] == [[(n, WIDTH), (n, 7)] for n in sizes]
    assert {one.sensitivity for each in specs for one in each.releases} == {RELATIVE_UNITS, lattice.SUM_UNITS}


def test_sampled_rows_double_what_a_neighbor_moves_and_cells_by_its_root():
    data = DATA | {"client_id": "who", "max_rows_per_client": 5}
    sums, cells = k_prototypes.round_specs(planned(data=data), WIDTH, 0)[0].releases
    assert sums.sensitivity == 2 * RELATIVE_UNITS
    assert cells.sensitivity == math.isqrt(2 * lattice.SUM_UNITS**2) + 1


@pytest.mark.parametrize("sampled", [{}, {"client_id": "who", "max_rows_per_client": 5}])
def test_a_second_accountant_has_the_same_bounds(sampled):
    settings = job(data=DATA | sampled)
    for spec in k_prototypes.round_specs(validated(settings), WIDTH, 0):
        for one in spec.releases:
            found = second_accountant.expected(settings, f"{spec.path}/{one.name}")
            assert (one.mechanism, one.geometry, one.sensitivity) == found[:3]


def test_an_indicator_of_missing_values_is_a_number():
    data = DATA | {"missing": {"lab": {"fill": 1.0, "indicator": True}}}
    config = planned(data=data)
    state = server.initial_state(config, np.zeros((0, WIDTH + 1)), WIDTH + 1)
    assert state.settings.columns.numbers == (0, 3, 4)
    assert state.settings.columns.codes == ((1, 2), (5, 3))


def test_rows_of_another_width_are_refused():
    with pytest.raises(ConfigError, match="rows must have the 7 features"):
        server.initial_state(planned(), np.zeros((0, 8)), 8)


def test_one_step_is_huangs():
    """Means of numbers, and the most frequent code of each column."""
    config = planned()
    points, which = groups(config)
    state = state_before(config)
    start = np.array([[-0.5, 0.4], [0.1, -0.4], [0.5, 0.4]])
    state = dataclasses.replace(state, centers=state.placed(start, np.array([[0, 0], [1, 1], [0, 2]])))
    spec = k_prototypes.round_specs(config, WIDTH, 0)[-1]
    state = server.prototypes_step(state, released(config, state, points, spec))
    means = np.stack([points[which == cluster][:, [0, 3]].mean(axis=0) for cluster in range(3)])
    np.testing.assert_allclose(state.positions[:, [0, 3]], means, atol=1e-5)
    np.testing.assert_array_equal(state.modes, [[0, 0], [1, 1], [0, 2]])
    np.testing.assert_allclose(state.counts, 300, rtol=1e-5)
    np.testing.assert_allclose(state.histograms.sum(axis=1), 600, rtol=1e-5)


@pytest.mark.parametrize("noise", [TINY, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_finds_clusters_of_numbers_and_codes(noise, seed):
    config = planned(seed=seed)
    points, _ = groups(config, n_rows=3000)
    state = run(config, points, noise, seed=seed)
    order = np.argsort(state.positions[:, 0])
    np.testing.assert_allclose(state.positions[order][:, [0, 3]], [[-0.6, 0.5], [0.0, -0.5], [0.6, 0.5]], atol=0.03)
    np.testing.assert_array_equal(state.modes[order], [[0, 0], [1, 1], [0, 2]])
    model = state.model()
    np.testing.assert_allclose(model.noisy_sizes, 1000, atol=6 * model.size_stddev + 1)


def test_starts_have_codes_as_frequent_as_noise_says_and_numbers_in_the_domain():
    """Codes that no row has start no prototype, however long the list is."""
    config = planned(n_clusters=50)
    rows = features(np.full(900, 0.9), [0, 1, 1] * 300, np.zeros(900), [2] * 900, config.k_prototypes.length)
    state, spec = state_before(config), k_prototypes.round_specs(config, WIDTH, 0)[0]
    state = server.first_step(state, released(config, state, rows, spec))
    assert state.centers.shape == (50 * server.FINE, WIDTH)
    assert np.mean(state.modes[:, 0] == 1) == pytest.approx(2 / 3, abs=0.1)
    assert set(state.modes[:, 0].tolist()) == {0, 1}
    assert set(state.modes[:, 1].tolist()) == {2}
    assert np.abs(state.numbers).max() <= 1.0
    assert state.numbers[:, 0].mean() > 0.5
    before = state_before(config)
    again = server.first_step(before, released(config, before, rows, spec))
    np.testing.assert_array_equal(state.centers, again.centers)


@pytest.mark.parametrize(("n_clusters", "rows"), [(40, 10), (200, 900)])
def test_more_clusters_than_rows_or_codes(n_clusters, rows):
    config = planned(n_clusters=n_clusters)
    state = run(config, groups(config, n_rows=rows)[0], 3.0)
    assert len(state.positions) == n_clusters
    assert np.isfinite(state.model().noisy_means).all()


def test_clients_find_the_same_clusters():
    config = planned(
        data=DATA | {"client_id": "who"},
        privacy={"unit": "client", "epsilon": 1.0, "delta": 1e-6},
        clipping={"client_rows": 3},
    )
    points, _ = groups(config, n_rows=3000)
    state = run(config, points, offsets=np.arange(0, 3001, 3))
    assert sorted(state.modes.tolist()) == [[0, 0], [0, 2], [1, 1]]
    np.testing.assert_allclose(state.counts, 1000 / 3, rtol=0.01)


def test_sizes_have_the_least_noise_that_columns_can_give():
    config = planned()
    state = state_before(config)
    noise = np.random.default_rng(0).normal(0.0, 5.0, (20_000, 7))
    found = state.weighed(noise)
    # Columns of 3 and of 4 cells: the inverse of 1 / 3 + 1 / 4.
    assert state.size_stddev(5.0) == pytest.approx(5.0 * math.sqrt(12 / 7))
    assert found.std() == pytest.approx(state.size_stddev(5.0), rel=0.02)
    np.testing.assert_allclose(state.weighed(np.array([[1, 2, 3, 4, 1, 1, 0.0]])), 6.0)


def one_cluster(config, points, noise, seed):
    """A round with one prototype, with noise."""
    spec = k_prototypes.round_specs(config, WIDTH, 0)[0]
    state = state_before(config)
    rng = np.random.default_rng(seed)
    return server.prototypes_step(state, released(config, state, points, spec, noise, rng=rng))


def test_shares_of_codes_have_the_noise_that_the_model_states():
    """A share is a cell over a size that has a part of the noise of the cell."""
    config = planned()
    rows = features(np.zeros(900), [0, 1, 1] * 300, np.zeros(900), [2] * 900, config.k_prototypes.length)
    models = [one_cluster(config, rows, 10.0, seed).model() for seed in range(300)]
    found = np.array([each.noisy_means[0] for each in models]) / config.k_prototypes.length
    stated = np.mean([each.center_stddevs[0] for each in models], axis=0) / config.k_prototypes.length
    np.testing.assert_allclose(found.mean(axis=0)[[1, 2, 4, 5, 6]], [1 / 3, 2 / 3, 0, 0, 1], atol=0.01)
    spread = found.std(axis=0)[[1, 2, 4, 5, 6]] / stated[[1, 2, 4, 5, 6]]
    # Of 300 draws a spread is off by more than 16% for one in 20,000.
    np.testing.assert_allclose(spread, 1.0, atol=0.16)


def test_a_cluster_whose_size_noise_explains_keeps_its_modes():
    config = planned()
    state = state_before(config)
    state = dataclasses.replace(state, centers=state.placed(np.zeros((1, 2)), np.array([[1, 2]])))
    rng = np.random.default_rng(3)
    for _ in range(20):
        spec = k_prototypes.round_specs(config, WIDTH, 0)[0]
        state = server.prototypes_step(
            dataclasses.replace(state, releases=()), released(config, state, np.zeros((0, WIDTH)), spec, 50.0, rng=rng)
        )
        np.testing.assert_array_equal(state.modes, [[1, 2]])


def test_codes_outside_of_the_list_are_one_cell_that_may_be_the_mode():
    config = planned()
    rows = features(np.zeros(50), [2] * 50, np.zeros(50), [3] * 50, config.k_prototypes.length)
    state = one_cluster(config, rows, TINY, 0)
    np.testing.assert_array_equal(state.modes, [[2, 3]])
    np.testing.assert_allclose(state.histograms[0], [0, 0, 50, 0, 0, 0, 50], atol=1e-3)
    np.testing.assert_allclose(state.model().noisy_means, 0.0, atol=1e-4)
    np.testing.assert_array_equal(state.positions, [[0.0] * WIDTH])


def test_merging_costs_what_the_rows_of_parts_cost():
    """Costs of parts, by their histograms, differ from those of their rows by the same for all prototypes."""
    config = planned()
    columns = state_before(config).settings.columns
    rng = np.random.default_rng(1)
    points, which = groups(config, n_rows=300)
    codes = columns.codes_of(points)
    cells = np.zeros((3, columns.n_cells))
    np.add.at(cells, (which[:, None], codes + columns.starts), 1)
    numbers = points[:, [0, 3]]
    means = np.stack([numbers[which == part].mean(axis=0) for part in range(3)])
    parts = merge.Parts(np.full(3, 100.0), means, columns.shares(cells))
    centers, modes = rng.normal(size=(5, 2)), np.stack([rng.integers(0, 3, 5), rng.integers(0, 4, 5)], axis=1)
    prototypes = columns.features(centers, modes)
    squared = ((points[:, None] - prototypes) ** 2).sum(axis=2)
    exact = np.stack([squared[which == part].sum(axis=0) for part in range(3)])
    differences = exact - merge.costs(parts, columns, centers, modes)
    np.testing.assert_allclose(differences, np.repeat(differences[:, :1], 5, axis=1), rtol=1e-6)


@pytest.mark.parametrize("rows", [np.zeros((0, WIDTH)), np.full((3, WIDTH), 1e300), np.full((1, WIDTH), -np.inf)])
def test_hostile_rows_leave_finite_prototypes_in_the_domain(rows):
    state = run(planned(), rows)
    assert (np.abs(state.positions) <= 1.0).all()
    assert np.isfinite(state.model().center_stddevs).all()


def test_a_broadcast_holds_no_release():
    config = planned()
    state = run(config, groups(config)[0])
    assert len(state.releases) == 14
    assert state.broadcast().releases == ()
    assert state.broadcast().histograms is None
