import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dapple_dp.schemas.reports.parameters import SubsetChoice
from dapple_dp.schemas.reports.rows import from_table, report_schema, to_table
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from dapple_dp.transforms.numerics.reports.coins import KeyedCoins
from dapple_dp.transforms.numerics.reports.encoder import COUNT_UNITS, Reports
from dapple_dp.transforms.numerics.reports.mechanism import codeword_choice
from dapple_dp.transforms.numerics.reports.sums import ReportSums
from dapple_dp.transforms.reports.batches import ReportBatch, distinct_reports
from tests.scenes.reports import parameters

VARIANTS = st.sampled_from(["leaves", "nested", "points", "privunit", "paper"])
ANY_POINTS = npst.arrays(np.float64, (5, 4), elements=st.floats(width=64))


def random_reports(variant: str, n_reports: int, seed: int) -> Reports:
    public = parameters(reports__variant=variant)
    rng = np.random.default_rng(seed)
    width = public.report_bytes - 8 if variant == "privunit" else 0
    most = 4 if variant == "paper" else 0 if variant == "privunit" else public.choices[0][0].size
    return Reports(
        rng.integers(0, 2**63, n_reports).astype(np.uint64),
        rng.integers(0, max(most, 1), n_reports).astype(np.uint16),
        rng.integers(0, 256, (n_reports, width)).astype(np.uint8),
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(points=ANY_POINTS, variant=VARIANTS)
def test_any_input_gives_a_report_and_the_same_one_again(points, variant):
    public = parameters(reports__variant=variant)
    nonces = np.arange(5, dtype=np.uint64)
    coins = [KeyedCoins([bytes([index]) * 16 for index in range(5)]) for _ in range(2)]
    first, second = (report_encoder.encode(points, public, nonces, each) for each in coins)
    sizes = np.prod([choice.size for choice, _ in public.choices])
    assert (first.indices < sizes).all()
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(points=ANY_POINTS)
def test_lifted_points_have_one_norm_whatever_they_were(points):
    lattice = report_encoder.lattice_points(points, 10.0)
    assert (np.einsum("ij,ij->i", lattice, lattice) <= 4.0**20).all()
    lifted = report_encoder.lift(lattice)
    squared = np.einsum("ij,ij->i", lifted, lifted)
    np.testing.assert_allclose(squared, 4.0**20 + COUNT_UNITS**2, rtol=1e-5)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(size=st.integers(2, 5000), data=st.data(), epsilon=st.floats(1e-3, 20.0))
def test_a_choice_keeps_its_epsilon_or_is_refused(size, data, epsilon):
    near = data.draw(st.integers(1, size - 1))
    choice = SubsetChoice.at_most(size, near, epsilon)
    assert choice.keeps(epsilon)
    assert choice.ratio >= 1


@settings(derandomize=True, deadline=None, max_examples=30)
@given(epsilon=st.floats(0.01, 8.0))
def test_codewords_keep_every_epsilon(epsilon):
    assert codeword_choice(epsilon).keeps(epsilon)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(variant=VARIANTS, n_reports=st.integers(0, 60), cut=st.integers(0, 60), seed=st.integers(0, 99))
def test_sums_do_not_depend_on_how_reports_are_grouped(variant, n_reports, cut, seed):
    public, reports = parameters(reports__variant=variant), random_reports(variant, n_reports, seed)
    order = np.random.default_rng(seed).permutation(n_reports)
    whole = ReportSums.of(reports, public)
    parts = [ReportSums.of(reports.take(order[rows]), public) for rows in (slice(0, cut), slice(cut, None))]
    merged = parts[0].merge(parts[1]).merge(ReportSums.zeros(public))
    for one, two in zip(whole, merged, strict=True):
        np.testing.assert_array_equal(one, two)
    assert whole.cells.dtype == np.int64


@settings(derandomize=True, deadline=None, max_examples=30)
@given(variant=VARIANTS, n_reports=st.integers(0, 40), seed=st.integers(0, 99))
def test_rows_and_batches_carry_reports_unchanged(variant, n_reports, seed):
    public, reports = parameters(reports__variant=variant), random_reports(variant, n_reports, seed)
    batch = ReportBatch.of(reports, public)
    assert len(batch.nonces) + len(batch.payload) == n_reports * public.report_bytes
    payload = reports.codewords if variant == "privunit" else reports.indices
    nonces, back = from_table(to_table(reports.nonces, payload, public), public, "here", report_schema(public))
    np.testing.assert_array_equal(nonces, reports.nonces)
    np.testing.assert_array_equal(back, payload)
    for one, two in zip(batch.reports(public), reports, strict=True):
        np.testing.assert_array_equal(one, two)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(variant=VARIANTS, n_reports=st.integers(1, 40), copies=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_nonce_counts_once_however_often_and_in_whatever_order_it_comes(variant, n_reports, copies, seed):
    public, reports = parameters(reports__variant=variant), random_reports(variant, n_reports, seed)
    shuffled = np.random.default_rng(seed).permutation(np.tile(np.arange(n_reports), copies))
    pieces = [ReportBatch.of(reports.take(part), public) for part in np.array_split(shuffled, 3)]
    found = distinct_reports((0, pieces), public)
    expected = reports.take(np.argsort(reports.nonces))
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)
