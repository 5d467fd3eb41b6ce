"""A fact has one function: each is asked over its range, and the table in CONTRIBUTING.md names what is there."""

import ast
import dataclasses
import itertools
import json
import pathlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.choices import ReportMode, Trust
from dapple_dp.schemas.core.plan import (
    Allocation,
    Geometry,
    Mechanism,
    PrivacyUnit,
    Promise,
    PromisedPlan,
    ReleasePlan,
    ReleaseSpec,
    RoundSpec,
    Zone,
)
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.windows_config import EpochTerms
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.schemas.privacy.release_table import releases_from_table, releases_to_table
from dapple_dp.schemas.privacy.statement import NEIGHBORING_RELATION, PrivacyStatement, describe, statement_from_json
from dapple_dp.schemas.reports.parameters import ReportGuarantee
from dapple_dp.schemas.settings.calendar import date_of, index_of
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.audit import composed
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.masked.noise_shares import with_shares
from tests.scenes.plans import planned

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| [^|]+ \| `([\w/]+\.py):([\w.]+)` \| `([\w/]+\.py)` \|$", re.MULTILINE)


def defined(path):
    """Functions and methods of a file, the latter with their class."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))


def test_the_table_of_facts_names_what_is_there():
    rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len(rows) >= 12
    for path, function, test in rows:
        assert function in set(defined(path)), (path, function)
        assert (ROOT / test).is_file()


# Senders.


@given(st.integers(1, 400), st.integers(0, 999), st.integers(1, 400))
def test_how_many_are_left_is_counted_in_whole_senders_of_decimal_shares(n, dropout, threshold):
    fewest = ShareLaw(threshold=threshold, dropout=dropout / 1000).fewest(n)
    assert fewest == max(threshold, n * (1000 - dropout) // 1000)
    assert fewest <= ShareLaw(threshold=threshold, dropout=0.0).fewest(n)


@given(st.sampled_from(ReportMode), st.integers(1, 10**6), st.integers(0, 2 * 10**6))
def test_a_batch_is_large_enough_by_one_rule(mode, least, n):
    promise = ReportGuarantee(mode=mode, local_epsilon=1.0, epsilon=1.0, delta=0.0, min_batch=least)
    assert promise.is_met_by(n) == (mode is ReportMode.LOCAL or n >= least)


# Windows.


def terms(windows, separation, most):
    return EpochTerms(
        name="e", column="dt", first="2026-01-01", windows=windows, max_windows=most, min_separation=separation
    )


@pytest.mark.parametrize("windows", range(1, 9))
def test_in_how_many_windows_a_unit_counts_is_the_most_of_all_its_choices(windows):
    for separation, most in itertools.product(range(1, windows + 2), range(1, windows + 2)):
        apart = [
            chosen
            for size in range(windows + 1)
            for chosen in itertools.combinations(range(windows), size)
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(chosen))
        ]
        found, free = terms(windows, separation, most), max(map(len, apart))
        assert found.times == min(most, free)
        assert found.binds == (most < free)


def test_without_a_contract_a_unit_counts_once():
    assert EpochTerms(name="e", column="dt", first="2026-01-01", windows=9, once="made for a test").times == 1


@given(st.dates().filter(lambda day: day.year < 9000), st.integers(1, 400), st.integers(0, 5000), st.integers(0, 399))
def test_the_window_of_a_date_is_the_one_that_begins_last_before_it(first, days, index, later):
    begin = date_of(first.isoformat(), days, index)
    assert index_of(first.isoformat(), days, begin) == index
    assert index_of(first.isoformat(), days, date_of(begin, later % days, 1)) == index


# Noise.

specs = st.builds(
    ReleaseSpec,
    name=st.sampled_from(["sums", "counts"]),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple),
    mechanism=st.sampled_from(Mechanism),
    sensitivity=st.integers(1, 1 << 40),
    share=st.floats(0.01, 10.0),
    geometry=st.sampled_from(Geometry),
)


@given(specs, st.floats(1e-3, 1e4), st.floats(1e-9, 1e9))
def test_the_noise_that_files_and_pages_state_is_that_of_the_plan(spec, multiplier, unit):
    plan = ReleasePlan(spec=spec, noise_multiplier=multiplier)
    release = Release(path="round/sums", plan=plan, values=np.zeros(spec.shape, dtype=np.int64)).with_unit(unit)
    (row,) = releases_to_table([release]).to_pylist()
    (back,) = releases_from_table(releases_to_table([release]))
    rounds = (dataclasses.replace(planned(multiplier)[0], releases=(plan,)),)
    (event,) = describe(dataclasses.replace(_plan_of(rounds), rounds=rounds))
    assert row["noise_stddev_lattice"] == event["noise_stddev_lattice"] == plan.noise_stddev
    assert release.stddev == back.stddev == row["noise_stddev_lattice"] * row["lattice_unit"]
    assert row["sensitivity_lattice"] == event["sensitivity_lattice"] == spec.sensitivity
    if spec.mechanism is Mechanism.DISCRETE_GAUSSIAN:
        assert plan.noise_scale == multiplier * spec.sensitivity


@given(st.floats(1e-6, 1e6), st.integers(1, 30))
def test_a_lattice_unit_is_the_norm_over_a_power_of_two(norm, bits):
    unit = Lattice(np.zeros(1), norm).unit(bits)
    assert unit * 2.0**bits == norm
    assert Lattice(np.zeros(1), norm).unit(lattice.SUM_BITS) * lattice.SUM_UNITS == norm


# Epsilon.


def _plan_of(rounds):
    return accounting.PrivacyPlan(
        unit=PrivacyUnit.RECORD, epsilon=1.0, delta=1e-6, discretization_slack=0.0, rounds=rounds
    )


@settings(max_examples=8)
@given(
    st.lists(
        specs.map(lambda spec: dataclasses.replace(spec, sensitivity=1 << 20, geometry=Geometry.VECTOR)),
        min_size=1,
        max_size=3,
    ),
    st.floats(0.2, 5.0),
    st.integers(4, 9),
    st.booleans(),
)
def test_plan_graph_statement_and_ledger_have_one_epsilon(found, epsilon, digits, split):
    if split:
        found = [dataclasses.replace(each, mechanism=Mechanism.DISCRETE_GAUSSIAN) for each in found]
    rounds = tuple(RoundSpec(path=f"round/{index}", releases=(each,)) for index, each in enumerate(found))
    delta, shares = 10.0**-digits, ShareLaw(threshold=2, dropout=0.0) if split else None
    laplace = any(each.mechanism is Mechanism.DISCRETE_LAPLACE for each in found)
    allocation = Allocation.PAPER if laplace else Allocation.TUNED
    plan = accounting.calibrate(PrivacyUnit.RECORD, rounds, epsilon, delta, allocation)
    spent = with_shares(plan.epsilon, plan.rounds) if split else plan.epsilon
    limit = max(epsilon, spent)
    promised = PromisedPlan(rounds=plan.rounds, unit=plan.unit, epsilon=limit, delta=delta, shares=shares)
    graph = composed(plan.rounds, Promise(zone=Zone.PUBLIC, plans=(promised,)))
    assert graph == (pytest.approx(spent, rel=1e-6), delta)
    statement = PrivacyStatement(
        unit=plan.unit,
        neighboring_relation=NEIGHBORING_RELATION,
        epsilon=spent,
        delta=delta,
        events=tuple(describe(plan)),
        trust=Trust.CENTRAL,
    )
    charge = Charge.of(statement, dataset="census", job="fit")
    again = Charge.from_json(json.loads(json.dumps(charge.to_json())))
    published = statement_from_json(json.loads(json.dumps(statement.to_json())))
    assert (again.epsilon, again.delta) == (published.epsilon, published.delta) == (spent, delta)
    assert again.equals(charge.to_json())
