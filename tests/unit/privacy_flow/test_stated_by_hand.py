"""What the checker demands of a plan, by hand: every bound from both sides."""

import dataclasses
import functools
import math
import types

import pytest

from schemas.privacy.plan import Geometry, Mechanism, PrivacyUnit, ReleaseSpec
from schemas.profile.config import CategoricalColumn
from schemas.profile.plan import ProfileEvent, ProfileLaw
from schemas.tables.contract import TableContract
from schemas.tables.participation import Participation
from tests.scenes.gaussian_rounds import round_of
from transforms.privacy_flow import stated_sensitivity
from transforms.privacy_flow.stated_sensitivity import (
    STATED,
    Moves,
    Stated,
    moves_of,
    profile_understatement,
    understatement,
    weights_of,
)

MEANS = "transforms.kmeans.lloyd.rounds:means_statistic"
QUALITY = "transforms.kmeans.lloyd.quality:statistic"
OUTER = "transforms.kmeans.feddp_kmeans.rounds:outer_statistic"
GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE


@pytest.mark.parametrize(
    ("statistic", "bounds"),
    [
        (MEANS, {"sums": 1 << 20, "counts": 1 << 20}),
        (OUTER, {"scatter": 1 << 32, "rows": 1 << 20}),
        ("transforms.kmeans.dp_lloyd.rounds:relative_statistic", {"sums": 1 << 26, "counts": 1 << 20}),
        ("transforms.kmeans.dp_medians.rounds:median_statistic", {"directions": 1 << 20, "counts": 1 << 20}),
        ("transforms.kmeans.spherical.rounds:sums_statistic", {"sums": 1 << 20}),
        ("transforms.kmeans.spherical.rounds:names_statistic", {"counts": 1 << 20, "terms": 1 << 20}),
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


def test_parts_are_those_of_the_statistic_in_order_but_for_the_last():
    assert understatement(MEANS, round_of(sums=1 << 20), replaces=False) is None
    for other in (round_of(counts=1 << 20), round_of(counts=1 << 20, sums=1 << 20), round_of(rows=1 << 20)):
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
    assert (stated_sensitivity.ONE_RELEASE, Moves()) == (((1,), 1), ((1,), 1))


@pytest.mark.parametrize(
    ("stated", "geometry", "mechanism", "replaces", "required"),
    [
        (Stated(bound=10), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=10), Geometry.SYMMETRIC, GAUSSIAN, False, math.inf),
        (Stated(bound=10, symmetric=True), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=10, symmetric=True), Geometry.VECTOR, LAPLACE, False, math.inf),
        (Stated(bound=10, interval=True), Geometry.VECTOR, LAPLACE, True, 10),
        (Stated(bound=10, interval=True), Geometry.VECTOR, GAUSSIAN, False, 10),
        (Stated(bound=10, vectors=True), Geometry.VECTOR, LAPLACE, False, 22),
        (Stated(bound=10, vectors=True), Geometry.VECTOR, LAPLACE, True, 44),
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
        (stated_sensitivity.COUNT, ProfileLaw.GAUSSIAN, 3.0),
        (stated_sensitivity.CLIENTS, ProfileLaw.GAUSSIAN, math.sqrt(2)),
    ],
)
def test_bounds_of_profiles(path, law, bound):
    """Three rows of a unit, two clusters."""
    columns = {"job": CategoricalColumn.model_construct(values=None)}
    columns["known"] = CategoricalColumn.model_construct(values=("a",))
    plan = types.SimpleNamespace(unit_rows=3, n_clusters=2, categorical=columns)

    def said(sensitivity):
        event = ProfileEvent(path=path, law=law, shape=None, sensitivity=sensitivity, share=1.0)
        return profile_understatement(types.SimpleNamespace(events=[event], **vars(plan)))

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
        assert (profile_understatement(types.SimpleNamespace(events=[event], **vars(plan))) is None) is holds


def test_every_statistic_has_parts():
    assert all(parts for parts in STATED.values())
