"""The central tree before it meets data, and its server steps on releases without noise."""

import functools
import math

import numpy as np
import pytest

from dapple_dp.schemas.choices import ClippingCenter
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Geometry, Mechanism, PrivacyUnit
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import Rows
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.central_tree import rounds as central_tree
from dapple_dp.transforms.kmeans.central_tree import server as tree_server
from dapple_dp.transforms.kmeans.central_tree.state import TreeSettings
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds
from tests.scenes import lake

RADIUS = 7.0


def config(unit="record", **settings):
    job = lake.job("rows", None, unit, algorithm="central_tree", tree={"radius": RADIUS})
    job["clipping"].pop("norm")
    for name, value in settings.items():
        section, _, key = name.rpartition("__")
        (job.setdefault(section, {}) if section else job)[key] = value
    return validated(job)


def specs(job, n_features=4):
    rounds = central_tree.round_specs(job, n_features)
    return {f"{each.path}/{spec.name}".removeprefix("central_tree/"): spec for each in rounds for spec in each.releases}


def plan_of(job, n_features=4):
    privacy = job.privacy
    found = central_tree.round_specs(job, n_features)
    return accounting.calibrate(privacy.unit, found, privacy.epsilon, privacy.delta, privacy.allocation)


@pytest.mark.parametrize("settings", [{}, {"lloyd__steps": 2}, {"data__public_rows": 9}])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_shares_add_up_to_the_whole_budget(unit, settings):
    found = specs(config(unit, **settings))
    assert math.fsum(spec.share for spec in found.values()) == pytest.approx(1.0)
    assert {spec.mechanism for spec in found.values()} == {Mechanism.DISCRETE_GAUSSIAN}
    lloyd = math.fsum(spec.share for name, spec in found.items() if name.startswith("lloyd"))
    assert lloyd == pytest.approx(0.25 if "lloyd__steps" in settings else 0.0)


def test_shapes_and_sensitivities():
    found = specs(config(lloyd={"steps": 1}))
    scatter = found["shape/scatter"]
    assert (scatter.shape, scatter.geometry, scatter.sensitivity) == ((10,), Geometry.SYMMETRIC, 1 << 32)
    assert {name: spec.shape for name, spec in found.items()} == {
        "shape/scatter": (10,),
        "shape/sums": (1, 4),
        "shape/rows": (1,),
        "splits_00/cells": (32,),
        "splits_01/cells": (1024,),
        "splits_02/cells": (8192,),
        "splits_03/cells": (8192,),
        "leaves/sums": (512, 4),
        "leaves/counts": (512,),
        "lloyd_00/sums": (3, 4),
        "lloyd_00/counts": (3,),
    }
    assert {spec.sensitivity for name, spec in found.items() if name != "shape/scatter"} == {lattice.SUM_UNITS}


def test_a_shallow_tree_has_few_cells_and_leaves():
    found = specs(config(tree__depth=6))
    assert {name: spec.shape[0] for name, spec in found.items() if not name.startswith("shape")} == {
        "splits_00/cells": 32,
        "splits_01/cells": 64,
        "leaves/sums": 64,
        "leaves/counts": 64,
    }


def test_public_numbers_are_not_bought():
    assert "shape/rows" not in specs(config(data__public_rows=9))


def test_a_row_that_lets_another_one_in_counts_twice():
    found = specs(config(data__max_rows_per_client=3, data__client_id="who", lloyd={"steps": 1}))
    assert found["leaves/sums"].sensitivity == found["lloyd_00/sums"].sensitivity == 2 * lattice.SUM_UNITS
    once_more = math.isqrt(2 * lattice.SUM_UNITS**2) + 1
    assert found["splits_02/cells"].sensitivity == found["leaves/counts"].sensitivity == once_more


def test_rounds_bind_every_plan_to_its_step():
    job = config(lloyd={"steps": 2})
    plan = plan_of(job)
    rounds = central_tree.rounds(job, plan)
    assert [each.plan for each in rounds] == list(plan.rounds)
    steps = [getattr(each.step, "func", each.step).__name__ for each in rounds]
    assert steps == ["shape_step", *["split_step"] * 4, "leaves_step", *["means_step"] * 2]


def exact(job, points, offsets=None):
    """States after each round, as if noise were zero."""
    plan = plan_of(job, points.shape[1])
    states = [tree_server.initial_state(job, np.zeros((3, points.shape[1])), points.shape[1])]
    for each in central_tree.rounds(job, plan):
        total, releases = each.statistic(ClientBlock(points, offsets), states[-1]), []
        for release in each.plan.releases:
            part, total = total[: release.spec.size], total[release.spec.size :]
            path = f"{each.plan.path}/{release.spec.name}"
            releases.append(Release(path=path, plan=release, values=part.reshape(release.spec.shape)))
        states.append(each.step(states[-1], tuple(releases)))
    return states


POINTS = lake.mixture(30_000)


@functools.cache
def states_of(unit):
    """States of a run on all points, worked out once; nobody changes them."""
    offsets = np.arange(0, 30_001, 10) if unit == "client" else None
    return exact(config(unit, privacy__epsilon=8.0), POINTS, offsets)


def test_without_noise_every_row_is_in_a_leaf_or_in_a_small_part():
    *_, before, after = states_of("record")
    assert before.n_rows == pytest.approx(30_000)
    labels = before.partition.labels(before.frame.quantize(POINTS, lattice.SUM_BITS))
    counts = np.bincount(labels[labels >= 0], minlength=before.partition.size)
    assert (np.diff(counts) <= 0).all()
    np.testing.assert_allclose(np.sort(before.leaf_counts)[::-1], counts[: len(before.leaf_counts)], rtol=1e-6)
    assert (labels >= 0).mean() > 0.9
    np.testing.assert_allclose(after.sizes.sum(), (labels >= 0).sum(), rtol=1e-6)


def test_the_middle_and_the_subspace_are_those_of_the_rows():
    state = exact(config(n_clusters=2), POINTS)[1]
    planes = state.partition.hyperplanes
    mean, covariance = POINTS.mean(axis=0), np.cov(POINTS.T)
    basis = np.linalg.eigh(covariance)[1][:, -2:]
    normals = planes.projection.basis
    np.testing.assert_allclose(basis @ (basis.T @ normals), normals, atol=0.02)
    shifts = planes.offsets * state.unit - mean @ normals
    stddevs = np.sqrt(np.einsum("dl,de,el->l", normals, covariance, normals))
    assert (np.abs(shifts) <= 1.02 * stddevs + 0.01).all()


@pytest.mark.parametrize("unit", ["record", "client"])
def test_centers_without_noise_are_means_of_clusters(unit):
    last = states_of(unit)[-1]
    distances = np.linalg.norm(last.model().centers[:, None] - lake.MEANS[None], axis=2)
    assert distances.min(axis=0).max() < 0.2
    assert (last.prior.variances > 0).all()
    assert len(last.samples) == (200 if unit == "client" else 0)
    assert (last.bounds == ClippingBounds.of_row(last.frame.lattice.clipping_norm)) == (unit == "record")


def test_the_bound_of_clients_is_that_of_rows_drawn_from_everything():
    states = states_of("client")
    assert config("client").clipping.client_rows == 10
    bounds = [state.bound for state in states[:-1]]
    assert bounds[:2] == [1.0, pytest.approx(math.sqrt(0.25 + 0.75 / 10))]
    assert (np.diff(bounds) <= 0).all()
    counts = np.concatenate([states[2].open_counts, states[2].leaf_counts])
    collision = ((counts / counts.sum()) ** 2).sum()
    assert bounds[2] == pytest.approx(math.sqrt(collision + (1 - collision) / 10))
    assert 1 / math.sqrt(10) < bounds[-1] < 1.0


def test_too_few_leaves_are_filled_up_with_public_points():
    points = np.tile([[1.0, 0.0, 0.0, 0.0]], (50, 1))
    last = exact(config(privacy__epsilon=0.5, n_clusters=5), points)[-1]
    assert last.model().centers.shape == (5, 4)
    assert np.isfinite(last.prior.variances).all()
    assert (np.linalg.norm(last.model().centers, axis=1) <= RADIUS).all()


@pytest.mark.parametrize(("depth", "most"), [(3, 8), (20, 512)])
def test_no_more_centers_than_leaves_are_asked_for(depth, most):
    def job(n_clusters):
        tree = {"tree__radius": 9.0, "tree__depth": depth, "clipping__norm": 9.0}
        return validated(lake.job("lake", None, algorithm="central_tree", n_clusters=n_clusters, **tree))

    assert tree_server.initial_state(job(most), np.zeros((1, 3)), 3).settings.n_leaves == most
    with pytest.raises(
        ConfigError, match=rf"^n_clusters must be at most {most}, the number of leaves of a tree of depth {depth}, "
    ):
        tree_server.initial_state(job(most + 1), np.zeros((1, 3)), 3)


def test_another_protocol_may_start_with_the_tree():
    job = validated(lake.job("rows", None, n_clusters=3, privacy__epsilon=8.0))
    found = central_tree.start_specs(job, 4, 0.6)
    assert math.fsum(spec.share for each in found for spec in each.releases) == pytest.approx(0.6)
    plan = accounting.calibrate(PrivacyUnit.RECORD, found, 8.0, 1e-6, job.privacy.allocation)
    state = tree_server.start_state(TreeSettings.from_config(job), Frame(Lattice(np.ones(4), RADIUS)))
    model = loop.simulate(state, central_tree.start_rounds(plan.rounds), [ClientBlock(POINTS)], lake.KEY).model()
    distances = np.linalg.norm(model.centers[:, None] - lake.MEANS[None], axis=2)
    assert distances.min(axis=0).max() < 0.2


def test_the_center_may_be_that_of_server_data():
    job = config(server_data={"path": "server"}, clipping={"center": "server_mean"})
    assert job.clipping.center is ClippingCenter.SERVER_MEAN
    state = tree_server.initial_state(job, np.array([[1.0, 3.0], [3.0, 5.0]]), 2)
    np.testing.assert_array_equal(state.frame.lattice.center, [2.0, 4.0])
    assert state.frame.lattice.clipping_norm == RADIUS


def test_a_broadcast_leaves_the_releases_behind_and_a_model_waits_for_the_leaves():
    state = exact(config(), POINTS[:300])[2]
    assert state.releases
    assert state.broadcast().releases == ()
    with pytest.raises(ValueError, match="the model is unknown until the leaf sums"):
        state.model()
    fresh = tree_server.initial_state(config(), np.zeros((1, 4)), 4)
    with pytest.raises(ValueError, match="the partition is unknown until the half-spaces"):
        _ = fresh.partition
    assert fresh.settings.means.unit == Rows()


def test_the_ball_lies_about_its_center():
    job = config(tree__center=[1.0, 2.0, -3.0, 0.0])
    frame = tree_server.initial_state(job, np.zeros((0, 4)), 4).frame
    np.testing.assert_array_equal(frame.lattice.center, [1.0, 2.0, -3.0, 0.0])
    far = frame.lattice.center + 1e6 * np.eye(4)
    norms = np.linalg.norm(frame.quantize(np.concatenate([far, [frame.lattice.center]]), lattice.SUM_BITS), axis=1)
    assert (norms <= 1 << lattice.SUM_BITS).all()
    assert norms[-1] == 0.0


def test_a_center_of_another_width_is_refused():
    job = config(tree__center=[1.0, 2.0, -3.0])
    with pytest.raises(ConfigError, match=r"tree\.center must have 4 numbers, one per feature, got 3; list"):
        tree_server.initial_state(job, np.zeros((0, 4)), 4)


def test_moving_rows_and_ball_together_moves_the_centers():
    moved = np.array([0.5, -1.0, 2.0, 0.25])
    points, found = lake.mixture(300), {}
    for name, shift in (("here", np.zeros(4)), ("there", moved)):
        job = config(tree__center=shift.tolist(), data__public_rows=300)
        plan = plan_of(job)
        state = tree_server.initial_state(job, np.zeros((0, 4)), 4)
        rounds = central_tree.rounds(job, plan)
        found[name] = loop.simulate(state, rounds, [ClientBlock(points + shift)], lake.KEY).model().centers
    np.testing.assert_allclose(found["there"] - moved, found["here"], atol=1e-4)
