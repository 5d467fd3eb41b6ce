"""Demands of the checker on a plan, by hand: every bound from both sides."""

import dataclasses
import functools
import math
import types

import pytest

from dapple_dp.schemas.core.plan import Geometry, Mechanism, PrivacyUnit, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.profile.config import CategoricalColumn
from dapple_dp.schemas.profile.plan import CLIENTS, COUNT, ProfileEvent, ProfileLaw
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.participation import Participation
from dapple_dp.transforms.core.stated_sensitivity import (
    L1,
    ONE_RELEASE,
    STATED,
    Moves,
    Stated,
    asks_l1,
    misshapen,
    moves_of,
    understatement,
    weights_of,
)
from dapple_dp.transforms.profile.pipeline_dp_noise import AddPipelineDPNoise
from tests.scenes.gaussian_rounds import round_of

MEANS = "dapple_dp.transforms.kmeans.lloyd.rounds:means_statistic"
QUALITY = "dapple_dp.transforms.kmeans.lloyd.quality:statistic"
OUTER = "dapple_dp.transforms.kmeans.feddp_kmeans.rounds:outer_statistic"
HISTOGRAM = "dapple_dp.transforms.kmeans.feddp_kmeans.rounds:histogram_statistic"
GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE


@pytest.mark.parametrize(
    ("statistic", "bounds"),
    [
        (MEANS, {"sums": 1 << 20, "counts": 1 << 20}),
        (OUTER, {"scatter": 1 << 32, "rows": 1 << 20}),
        ("dapple_dp.transforms.kmeans.dp_lloyd.rounds:relative_statistic", {"sums": 1 << 26, "counts": 1 << 20}),
        ("dapple_dp.transforms.kmeans.dp_medians.rounds:median_statistic", {"directions": 1 << 20, "counts": 1 << 20}),
        ("dapple_dp.transforms.kmeans.k_prototypes.rounds:prototypes_statistic", {"sums": 1 << 26, "cells": 1 << 20}),
        ("dapple_dp.transforms.kmeans.spherical.rounds:sums_statistic", {"sums": 1 << 20}),
        ("dapple_dp.transforms.kmeans.spherical.rounds:names_statistic", {"counts": 1 << 20, "terms": 1 << 20}),
        (QUALITY, {"cost": 1 << 20, "sizes": 1 << 20}),
    ],
)
def test_bounds_of_statistics_are_what_a_unit_adds(statistic, bounds):
    """Numbers of the lattice, as the pages give them; one unit less of any is refused."""
    assert understatement(statistic, round_of(**bounds), replaces=False) is None
    for name, bound in bounds.items():
        said = understatement(statistic, round_of(**bounds | {name: bound - 1}), replaces=False)
        assert said == f"{bound - 1} lattice units for {name}, which one unit moves by {float(bound)}"


def test_what_may_be_replaced_moves_twice():
    vectors, counts = 2 << 20, math.isqrt(2 << 40) + 1
    assert understatement(MEANS, round_of(sums=vectors, counts=counts), replaces=True) is None
    assert "for sums" in understatement(MEANS, round_of(sums=vectors - 1, counts=counts), replaces=True)
    assert "for counts" in understatement(MEANS, round_of(sums=vectors, counts=counts - 1), replaces=True)
    assert understatement(QUALITY, round_of(cost=1 << 20, sizes=counts), replaces=True) is None
    assert "for sizes" in understatement(QUALITY, round_of(cost=1 << 20, sizes=counts - 1), replaces=True)


def test_parts_are_those_of_the_statistic_in_order_but_for_optional_ones():
    assert understatement(OUTER, round_of(scatter=1 << 32), replaces=False) is None
    sums = round_of(sums=1 << 20)
    for other in (sums, round_of(counts=1 << 20), round_of(counts=1 << 20, sums=1 << 20), round_of(rows=1 << 20)):
        assert understatement(MEANS, other, replaces=False) == f"releases that are not the parts of {MEANS}"
    for unknown in (None, "other:statistic"):
        found = understatement(unknown, round_of(sums=1 << 20), replaces=False)
        assert found == "a statistic that states no sensitivity"


def test_windows_count_by_their_column_and_their_number():
    moves = Moves((3, 4), 2)
    plan = round_of(sums=5 << 20, counts=5 << 20)
    windows = tuple(dataclasses.replace(each, spec=dataclasses.replace(each.spec, windows=2)) for each in plan.releases)
    wide = dataclasses.replace(plan, releases=windows)
    assert understatement(MEANS, wide, replaces=False, moves=moves) is None
    assert understatement(MEANS, plan, replaces=False, moves=moves) == "1 windows for sums, of which one unit moves 2"
    less = dataclasses.replace(wide.releases[0].spec, sensitivity=(5 << 20) - 1)
    less = dataclasses.replace(wide, releases=(dataclasses.replace(wide.releases[0], spec=less), wide.releases[1]))
    assert "lattice units for sums" in understatement(MEANS, less, replaces=False, moves=moves)
    assert (ONE_RELEASE, Moves()) == (((1,), 1), ((1,), 1))


@pytest.mark.parametrize(
    ("stated", "geometry", "mechanism", "replaces", "required"),
    [
        (Stated(bound=10), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=10), Geometry.SYMMETRIC, GAUSSIAN, False, math.inf),
        (Stated(bound=10, symmetric=True), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=10, symmetric=True), Geometry.VECTOR, LAPLACE, False, math.inf),
        (Stated(bound=10, interval=True, l1=L1.ALWAYS), Geometry.VECTOR, LAPLACE, True, 10),
        (Stated(bound=10, interval=True), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=10, vectors=True, rows=True, l1=L1.ALWAYS), Geometry.VECTOR, LAPLACE, False, 22),
        (Stated(bound=10, vectors=True, rows=True, l1=L1.ALWAYS), Geometry.VECTOR, LAPLACE, True, 44),
        (Stated(bound=10, vectors=True, rows=True), Geometry.VECTOR, LAPLACE, False, math.inf),
        (Stated(bound=10), Geometry.VECTOR, LAPLACE, False, math.inf),
        (Stated(bound=10, l1=L1.ASKED), Geometry.VECTOR, LAPLACE, False, math.inf),
        (Stated(bound=10, l1=L1.ASKED), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=7), Geometry.VECTOR, GAUSSIAN, True, 10),
    ],
)
def test_required_sensitivities(stated, geometry, mechanism, replaces, required):
    spec = ReleaseSpec(name="x", shape=(3, 5), mechanism=mechanism, sensitivity=1, share=1.0, geometry=geometry)
    assert stated.required(spec, replaces=replaces) == required


# What moves a statistic.


def contract(**rule):
    own = None if not rule else Participation(column="dt", dates=("a",), index=0, path="roll", **rule)
    return TableContract(features=("x",), n_features=1, participation=own)


def test_weights_are_those_that_were_applied():
    weighted = functools.partial(functools.partial(print, weights=[4, 2]), 1)
    assert weights_of(weighted) == (4, 2)
    assert weights_of(print) is None
    assert weights_of(functools.partial(print, 1)) is None


def test_what_a_unit_moves_follows_from_weights_and_rolls():
    weighted, rolled = functools.partial(print, weights=(4, 2)), contract(max_windows=2, min_separation=1)
    assert moves_of(print, [contract()], PrivacyUnit.CLIENT) == ((1,), 1)
    assert moves_of(weighted, [contract()], PrivacyUnit.RECORD) == ((4, 2), 2)
    assert moves_of(weighted, [], PrivacyUnit.RECORD) == ((4, 2), 2)
    assert moves_of(weighted, [rolled], PrivacyUnit.RECORD) is None
    assert moves_of(print, [rolled], PrivacyUnit.CLIENT) is None
    assert moves_of(weighted, [], PrivacyUnit.CLIENT) is None
    assert moves_of(weighted, [rolled, contract()], PrivacyUnit.CLIENT) is None
    assert moves_of(weighted, [rolled], PrivacyUnit.CLIENT) == ((4, 6, 2), 4)
    other = contract(max_windows=3, min_separation=2)
    assert moves_of(weighted, [rolled, other], PrivacyUnit.CLIENT) == ((4, 6, 6, 2), 6)
    far = contract(max_windows=2, min_separation=3)
    assert moves_of(weighted, [far], PrivacyUnit.CLIENT) == ((4, 2, 0, 4, 2), 4)


@pytest.mark.parametrize(
    ("path", "law", "bound"),
    [
        ("profile/counts", ProfileLaw.GAUSSIAN, None),
        ("profile/means/age", ProfileLaw.GAUSSIAN, 3 << 20),
        ("profile/percentiles/age", ProfileLaw.GAUSSIAN, 6.0),
        ("profile/percentiles/age", ProfileLaw.LAPLACE, 12.0),
        ("profile/histograms/job", ProfileLaw.GAUSSIAN, math.sqrt(3)),
        ("profile/selections/job", ProfileLaw.GAUSSIAN, math.sqrt(3)),
        ("profile/histograms/known", ProfileLaw.GAUSSIAN, math.sqrt(2)),
        ("profile/histograms/age", ProfileLaw.GAUSSIAN, None),
        ("profile/other/job", ProfileLaw.GAUSSIAN, None),
        (COUNT, ProfileLaw.GAUSSIAN, 3.0),
        (CLIENTS, ProfileLaw.GAUSSIAN, math.sqrt(2)),
    ],
)
def test_bounds_of_profiles(path, law, bound):
    """Three rows of a unit, two clusters."""
    columns = {"job": CategoricalColumn.model_construct(values=None)}
    columns["known"] = CategoricalColumn.model_construct(values=("a",))
    plan = types.SimpleNamespace(unit_rows=3, n_clusters=2, categorical=columns)

    def said(sensitivity):
        event = ProfileEvent(path=path, law=law, shape=None, sensitivity=sensitivity, share=1.0)
        return AddPipelineDPNoise(plan=types.SimpleNamespace(events=[event], **vars(plan))).understatement()

    if bound is None:
        assert said(1e300).endswith("which one unit moves by inf")
        return
    assert said(bound) is None
    assert said(bound * (1 - 1e-9)) == f"{bound:g} for {path}, which one unit moves by {bound:g}"
    assert said(math.nan) is not None


def test_cells_of_a_client_are_of_distinct_clusters_and_values():
    """Nine rows of a client move the cells of two clusters and two values by 1 each: four at most."""
    columns = {"known": CategoricalColumn.model_construct(values=("a", "b"))}
    plan = types.SimpleNamespace(unit_rows=9, n_clusters=2, categorical=columns)
    for sensitivity, holds in [(2.0, True), (2.0 - 1e-9, False)]:
        event = ProfileEvent(
            path="profile/histograms/known", law=ProfileLaw.GAUSSIAN, shape=None, sensitivity=sensitivity, share=1.0
        )
        found = AddPipelineDPNoise(plan=types.SimpleNamespace(events=[event], **vars(plan))).understatement()
        assert (found is None) is holds


def test_every_statistic_has_parts():
    assert all(parts for parts in STATED.values())


def test_laplace_noise_needs_a_statistic_that_clips_in_l1():
    spec = ReleaseSpec(name="x", shape=(9,), mechanism=LAPLACE, sensitivity=1, share=1.0)
    assert Stated(bound=10, l1=L1.ASKED).required(spec, replaces=False, l1=True) == 10
    assert Stated(bound=10).required(spec, replaces=False, l1=True) == math.inf
    histogram = RoundPlan(
        path="test",
        releases=(
            ReleasePlan(spec=dataclasses.replace(spec, name="histogram", sensitivity=1 << 20), noise_multiplier=1.0),
        ),
    )
    assert understatement(HISTOGRAM, histogram, replaces=False, l1=True) is None
    assert "which one unit moves by inf" in understatement(HISTOGRAM, histogram, replaces=False)
    for bound, asked in [
        (functools.partial(min, l1=True), True),
        (functools.partial(functools.partial(min, l1=True), 3), True),
        (functools.partial(min, l1=False), False),
        (functools.partial(min, l1=1), False),
        (min, False),
    ]:
        assert asks_l1(bound) is asked


@pytest.mark.parametrize("weights", [(1, 2), (9, 1, 9), (0,), (2, 0), (), (-1,)])
def test_weights_of_windows_descend_and_are_positive(weights):
    """The worst column of others is not the one with the closest windows."""
    assert moves_of(functools.partial(min, weights=weights), [], PrivacyUnit.RECORD) is None


def plan(*shapes, names=("sums", "counts")):
    specs = [
        ReleaseSpec(name=name, shape=shape, mechanism=GAUSSIAN, sensitivity=1 << 20, share=1.0)
        for name, shape in zip(names, shapes, strict=True)
    ]
    return RoundPlan(path="p", releases=tuple(ReleasePlan(spec=each, noise_multiplier=1.0) for each in specs))


def test_shapes_are_those_of_the_rows_of_the_state():
    """A plan for 2 columns has 12 numbers for 4 clusters, and so has one for 3 columns and 3 clusters."""
    assert plan((4, 2), (4,)).size == plan((3, 3), (3,)).size == plan((8, 1), (4,)).size
    assert misshapen(MEANS, plan((4, 2), (4,)), 2) is None
    assert misshapen(MEANS, plan((3, 3), (3,)), 2) == "sums of shape (3, 3)"
    assert misshapen(MEANS, plan((8, 1), (4,)), 2) == "sums of shape (8, 1)"
    assert misshapen(None, plan((8, 1), (4,)), 2) is None
    scatter = "dapple_dp.transforms.kmeans.dp_lloyd.rounds:scatter_statistic"
    spec = ReleaseSpec(name="scatter", shape=(3,), mechanism=GAUSSIAN, sensitivity=1, share=1.0)
    round_plan = RoundPlan(path="p", releases=(ReleasePlan(spec=spec, noise_multiplier=1.0),))
    assert misshapen(scatter, round_plan, 2) is None
    assert misshapen(scatter, round_plan, 3) == "scatter of shape (3,)"


def test_parts_of_another_plan_of_the_same_size_are_refused():
    """Each of them would give numbers of one part the noise of another."""
    tree = "dapple_dp.transforms.kmeans.central_tree.rounds:shape_statistic"
    named = "dapple_dp.transforms.kmeans.spherical.rounds:names_statistic"
    shape, terms, cost = ("scatter", "sums", "rows"), ("counts", "terms"), ("cost", "sizes")
    for statistic, names, n_features, fitting, others in [
        (MEANS, ("sums", "counts"), 2, [(3, 2), (3,)], [[(2, 2), (5,)], [(0, 2), (9,)], [(3, 2), (3, 1)]]),
        (MEANS, ("sums", "counts"), 3, [(5, 3), (5,)], [[(2, 3), (2, 7)]]),
        (tree, shape, 1, [(1,), (1, 1), (1,)], [[(2,), (1, 1), (0,)], [(1,), (0, 1), (2,)]]),
        (tree, shape[:2], 1, [(1,), (1, 1)], [[(1,), (2, 1)]]),
        (named, terms, 2, [(2,), (2, 5)], [[(3,), (3, 3)], [(2, 2), (2, 4)], [(6,), (6, 1)]]),
        (named, terms[:1], 2, [(2,)], [[(12,)]]),
        (QUALITY, cost, 2, [(1,), (4,)], [[(4,), (1,)], [(5,), (0,)]]),
    ]:
        assert misshapen(statistic, plan(*fitting, names=names), n_features, 2) is None
        for shapes in others:
            assert misshapen(statistic, plan(*shapes, names=names), n_features, 2) is not None, (statistic, shapes)
    assert misshapen(named, plan((2,), names=terms[:1]), 2) == "counts of shape (2,)"


def test_cells_belong_to_the_clusters_of_the_sums_before_them():
    """Else a part of the cells could be taken for sums, whose noise is another."""
    name = "dapple_dp.transforms.kmeans.k_prototypes.rounds:prototypes_statistic"

    def plan(sums, cells):
        bounds = round_of(sums=1 << 26, cells=1 << 20)
        shapes = (sums, cells)
        specs = (
            dataclasses.replace(each.spec, shape=shape) for each, shape in zip(bounds.releases, shapes, strict=True)
        )
        releases = tuple(
            dataclasses.replace(each, spec=spec) for each, spec in zip(bounds.releases, specs, strict=True)
        )
        return dataclasses.replace(bounds, releases=releases)

    assert misshapen(name, plan((5, 4), (5, 9)), 4) is None
    assert misshapen(name, plan((5, 5), (5, 8)), 4) == "sums of shape (5, 5)"
    for cells in ((4, 9), (6, 9), (45,), (5, 9, 1), ()):
        assert misshapen(name, plan((5, 4), cells), 4) == f"cells of shape {cells}"
