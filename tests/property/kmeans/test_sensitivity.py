"""Adding or removing one privacy unit moves no integer sum by more than the declared sensitivity, ever."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=150)
settings.load_profile("ci")

ROWS, CLIENTS = of_unit(Rows()), of_unit(Clients())
D = 3
anything = st.floats(allow_nan=False, allow_infinity=False, width=64)
ordinary = st.floats(-3.0, 3.0)
rows = hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.just(D)), elements=st.one_of(ordinary, anything))
frames = st.builds(
    lambda center, norm: Frame(Lattice(center, norm)),
    hnp.arrays(np.float64, D, elements=ordinary),
    st.floats(1e-3, 1e3),
)
bounds = st.floats(1e-3, 1e3)
forms = st.sampled_from(["mean_sums_and_counts", "means_of_means", "clipped_sums_and_counts"])


@st.composite
def assigners(draw):
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    if draw(st.booleans()):
        basis = np.linalg.qr(rng.normal(size=(D, 2)))[0]
        return Assigner(rng.integers(-(2**20), 2**20, (4, 2)).astype(float), Projection.from_basis(basis))
    return Assigner(rng.integers(-(2**19), 2**19, (4, D)).astype(float))


def frobenius_squared(triangle: np.ndarray) -> int:
    matrix = np.zeros((D, D), dtype=object)
    matrix[np.triu_indices(D)] = triangle.tolist()
    off = sum(int(v) ** 2 for v in matrix[np.triu_indices(D, 1)])
    return sum(int(v) ** 2 for v in np.diag(matrix)) + 2 * off


def l2_squared(vector: np.ndarray) -> int:
    return sum(int(v) ** 2 for v in vector)


def moved(statistic, points: np.ndarray, at: int) -> np.ndarray:
    """Returns how far removing row `at` moves a record-level statistic."""
    return statistic(ClientBlock(points)) - statistic(ClientBlock(np.delete(points, at, axis=0)))


@given(rows, frames, st.booleans(), st.integers(0, 29))
def test_record_outer_product(points, frame, relative, at):
    change = moved(
        lambda b: ROWS.outer_product(b, frame, frame.lattice.clipping_norm**2, relative=relative),
        points,
        at % len(points),
    )
    assert frobenius_squared(change) <= ROWS.OUTER_SENSITIVITY**2


@given(rows, frames, assigners(), st.booleans(), st.integers(0, 29))
def test_record_histogram(points, frame, assigner, relative, at):
    change = moved(lambda b: ROWS.histogram(b, frame, assigner, 1.0, relative=relative), points, at % len(points))
    assert np.abs(change).sum() <= ROWS.COUNT_SENSITIVITY


@given(rows, frames, assigners(), forms, st.integers(0, 29))
def test_record_sums_and_counts(points, frame, assigner, kind, at):
    form, norm = getattr(ROWS, kind), frame.lattice.clipping_norm
    change = moved(lambda b: form(b, frame, assigner, norm, 1.0), points, at % len(points))
    assert l2_squared(change[: -assigner.size]) <= ROWS.SUM_SENSITIVITY**2
    assert np.abs(change[-assigner.size :]).sum() <= ROWS.COUNT_SENSITIVITY


def client_change(statistic, points: np.ndarray, cut: int) -> np.ndarray:
    """Returns how far one client (the rows from `cut` on) moves a client-level statistic beside another client."""
    cut = cut % len(points)
    offsets = [0, cut, len(points)] if cut else [0, len(points)]
    both = ClientBlock(points, np.array(offsets, dtype=np.int64))
    rest = ClientBlock(points[:cut], np.array(offsets[:-1], dtype=np.int64))
    return statistic(both) - statistic(rest)


@given(rows, frames, bounds, st.booleans(), st.integers(0, 29))
def test_client_outer_product(points, frame, bound, relative, cut):
    change = client_change(lambda b: CLIENTS.outer_product(b, frame, bound, relative=relative), points, cut)
    assert frobenius_squared(change) <= CLIENTS.OUTER_SENSITIVITY**2


@given(rows, frames, assigners(), bounds, st.booleans(), st.integers(0, 29))
def test_client_histogram(points, frame, assigner, bound, relative, cut):
    change = client_change(lambda b: CLIENTS.histogram(b, frame, assigner, bound, relative=relative), points, cut)
    if relative:
        assert l2_squared(change) <= CLIENTS.COUNT_SENSITIVITY**2
    else:
        assert np.abs(change).sum() <= CLIENTS.COUNT_SENSITIVITY


@given(rows, frames, assigners(), bounds, bounds, forms, st.integers(0, 29))
def test_client_sums_and_counts(points, frame, assigner, sums_bound, counts_bound, kind, cut):
    form = getattr(CLIENTS, kind)
    change = client_change(lambda b: form(b, frame, assigner, sums_bound, counts_bound), points, cut)
    assert l2_squared(change[: -assigner.size]) <= CLIENTS.SUM_SENSITIVITY**2
    counts = change[-assigner.size :]
    norm = l2_squared(counts) if kind == "mean_sums_and_counts" else int(np.abs(counts).sum()) ** 2
    assert norm <= CLIENTS.COUNT_SENSITIVITY**2


@given(rows, frames, assigners(), st.integers(0, 30))
def test_any_split_of_rows_gives_the_same_sums(points, frame, assigner, cut):
    norm = frame.lattice.clipping_norm
    for statistic in (
        lambda b: ROWS.outer_product(b, frame, norm**2, relative=False),
        lambda b: ROWS.histogram(b, frame, assigner, 1.0, relative=False),
        lambda b: ROWS.mean_sums_and_counts(b, frame, assigner, norm, 1.0),
    ):
        parts = [statistic(ClientBlock(part)) for part in (points[:cut], points[cut:])]
        np.testing.assert_array_equal(statistic(ClientBlock(points)), sum(parts))


@given(rows, frames)
def test_clipped_rows_keep_their_norm(points, frame):
    for bits in (lattice.OUTER_BITS, lattice.SUM_BITS):
        quantized = frame.quantize(points, bits)
        assert (quantized == np.trunc(quantized)).all()
        assert all(l2_squared(row) <= 4**bits for row in quantized)


@given(rows, frames, st.integers(0, 29))
def test_norm_histograms(points, frame, at):
    center = frame.lattice.center
    change = moved(lambda b: ROWS.norm_histogram(b, center), points, at % len(points))
    assert np.abs(change).sum() <= lattice.SUM_UNITS
    change = client_change(lambda b: CLIENTS.norm_histogram(b, center), points, at)
    assert np.abs(change).sum() <= lattice.SUM_UNITS


final_centers = st.builds(
    lambda seed, n: np.random.default_rng(seed).integers(-(2**19), 2**19, (n, D)).astype(float),
    st.integers(0, 2**16),
    st.integers(1, 4),
)
caps = st.one_of(st.just(np.inf), st.floats(1e-3, 2.0**22))


def assert_within_bounds(change: np.ndarray, n_clusters: int) -> None:
    assert change.shape == (1 + n_clusters,)
    assert 0 <= change[0] <= distances.SENSITIVITY
    assert (change[1:] >= 0).all()
    assert change[1:].sum() <= distances.SENSITIVITY


@given(rows, frames, final_centers, caps, st.integers(0, 29))
def test_record_quality(points, frame, centers, cap, at):
    bound = squared_bound(centers, cap)
    change = moved(lambda b: ROWS.quality(b, frame, centers, bound), points, at % len(points))
    assert_within_bounds(change, len(centers))
    assert sorted(change[1:])[-1] == distances.SENSITIVITY


@given(rows, frames, final_centers, caps, st.integers(0, 29), st.integers(0, 29))
def test_a_row_in_the_place_of_another_moves_the_cost_no_farther(points, frame, centers, cap, first, second):
    bound = squared_bound(centers, cap)
    found = [
        ROWS.quality(ClientBlock(np.delete(points, at % len(points), axis=0)), frame, centers, bound)
        for at in (first, second)
    ]
    change = found[0] - found[1]
    assert abs(change[0]) <= distances.SENSITIVITY
    assert l2_squared(change[1:]) <= 2 * distances.SENSITIVITY**2


@given(rows, frames, final_centers, caps, st.integers(0, 29))
def test_client_quality(points, frame, centers, cap, cut):
    bound = squared_bound(centers, cap)
    change = client_change(lambda b: CLIENTS.quality(b, frame, centers, bound), points, cut)
    assert_within_bounds(change, len(centers))


@given(rows, frames, final_centers, st.integers(0, 30))
def test_any_split_of_rows_has_the_same_quality(points, frame, centers, cut):
    bound = squared_bound(centers)
    parts = [ROWS.quality(ClientBlock(part), frame, centers, bound) for part in (points, points[:cut], points[cut:])]
    np.testing.assert_array_equal(parts[0], parts[1] + parts[2])


caps_of_gains = st.one_of(st.integers(1, 100), st.integers(1, 2**42))


@given(rows, frames, final_centers, final_centers, caps_of_gains, st.integers(0, 29))
def test_gains_of_rows_and_clients(points, frame, before, after, bound, at):
    change = moved(lambda b: ROWS.gain(b, frame, before, after, bound), points, at % len(points))
    assert change.shape == (1,)
    assert abs(change[0]) <= ROWS.QUALITY_SENSITIVITY
    change = client_change(lambda b: CLIENTS.gain(b, frame, before, after, bound), points, at)
    assert abs(change[0]) <= CLIENTS.QUALITY_SENSITIVITY


@given(rows, frames, final_centers, final_centers, caps_of_gains, st.integers(0, 30))
def test_any_split_of_rows_has_the_same_gain(points, frame, before, after, bound, cut):
    parts = [ROWS.gain(ClientBlock(part), frame, before, after, bound) for part in (points, points[:cut], points[cut:])]
    np.testing.assert_array_equal(parts[0], parts[1] + parts[2])
