"""FedDP-KMeans before it meets data: its rounds, their shares and mechanisms, and the state it starts from."""

import math

import numpy as np
import pytest

from dapple_dp.schemas.core.plan import (
    Geometry,
    Mechanism,
    PrivacyPlan,
    PrivacyUnit,
    ReleasePlan,
    ReleaseSpec,
    RoundPlan,
)
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, validated
from dapple_dp.schemas.kmeans.sections.privacy_config import Shares
from dapple_dp.transforms.core.statistics import lattice, rows
from dapple_dp.transforms.kmeans.feddp_kmeans import rounds as feddp_kmeans
from dapple_dp.transforms.kmeans.feddp_kmeans import server as feddp_server
from dapple_dp.transforms.kmeans.feddp_kmeans.rounds import ROWS_SHARE
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.rounds import DEFAULT_SHARES
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
BASE = {
    "experimental": True,
    "algorithm": "feddp_kmeans",
    "data": {"path": "lake", "features": "x", "client_id": "who"},
    "server_data": {"path": "server"},
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
    "clipping": {"norm": "server_radius", "client_rows": 10},
}
EVERYTHING = {"lloyd": {"steps": 2, "share": 0.2}}
CASES = [(unit, allocation) for unit in ("record", "client") for allocation in ("tuned", "paper")]


def config(**sections) -> FitConfig:
    merged = {name: BASE.get(name, {}) | value for name, value in sections.items()}
    return validated(BASE | merged)


def specs(job: FitConfig) -> dict[str, ReleaseSpec]:
    rounds = feddp_kmeans.round_specs(job, n_features=4, n_bins=30)
    assert len({each.path for each in rounds}) == len(rounds)
    return {f"{each.path}/{spec.name}".removeprefix("feddp_kmeans/"): spec for each in rounds for spec in each.releases}


@pytest.mark.parametrize(("unit", "allocation"), CASES)
@pytest.mark.parametrize("extra", [{}, EVERYTHING])
def test_shares_add_up_to_the_whole_budget(unit, allocation, extra):
    found = specs(config(privacy={"unit": unit, "allocation": allocation}, **extra))
    rows = found.pop("outer_product/rows", None)
    assert math.fsum(spec.share for spec in found.values()) == pytest.approx(1.0)
    assert rows is None or rows.share == ROWS_SHARE


@pytest.mark.parametrize(("unit", "allocation"), CASES)
def test_the_start_is_split_by_the_default_shares(unit, allocation):
    job = config(privacy={"unit": unit, "allocation": allocation})
    found = specs(job)
    names = ("outer_product/scatter", "weights/histogram", "centers/sums", "centers/counts")
    expected = DEFAULT_SHARES[job.privacy.allocation, PrivacyUnit(unit)]
    np.testing.assert_allclose([found[name].share for name in names], expected)


def test_given_shares_count_by_their_ratios():
    shares = {"outer_product": 2.0, "weights": 4.0, "sums": 6.0, "counts": 8.0}
    job = config(data={"public_rows": 100})
    found = specs(job.model_copy(update={"privacy": job.privacy.with_shares(Shares(**shares))}))
    np.testing.assert_allclose([spec.share for spec in found.values()], [0.1, 0.2, 0.3, 0.4])


def test_paper_uses_laplace_for_histograms_and_counts():
    found = specs(config(privacy={"allocation": "paper"}, **EVERYTHING))
    for name, spec in found.items():
        laplace = name.endswith(("/histogram", "/counts"))
        assert spec.mechanism is (LAPLACE if laplace else GAUSSIAN), name


def test_without_guards_all_entries_of_the_outer_product_have_the_printed_noise():
    printed = validated(BASE | {"preset": "published", "clipping": {"norm": "server_radius", "center": "none"}})
    for job, geometry in ((config(privacy={"allocation": "paper"}), Geometry.SYMMETRIC), (printed, Geometry.VECTOR)):
        found = specs(job)
        assert found["outer_product/scatter"].geometry is geometry
        assert found["outer_product/scatter"].sensitivity == rows.OUTER_SENSITIVITY


def test_tuned_uses_gaussian_noise_throughout():
    assert {spec.mechanism for spec in specs(config(**EVERYTHING)).values()} == {GAUSSIAN}


@pytest.mark.parametrize("public_rows", [None, 1000])
@pytest.mark.parametrize("allocation", ["tuned", "paper"])
def test_a_noisy_number_of_rows_is_bought_only_where_it_is_needed(allocation, public_rows):
    found = specs(config(privacy={"allocation": allocation}, data={"public_rows": public_rows}))
    assert ("outer_product/rows" in found) == (allocation == "tuned" and public_rows is None)


def test_shapes_and_sensitivities():
    found = specs(config(lloyd={"steps": 1}))
    scatter = found.pop("outer_product/scatter")
    assert (scatter.shape, scatter.geometry, scatter.sensitivity) == ((10,), Geometry.SYMMETRIC, 1 << 32)
    assert {name: spec.shape for name, spec in found.items()} == {
        "outer_product/rows": (1,),
        "weights/histogram": (30,),
        "centers/sums": (3, 4),
        "centers/counts": (3,),
        "lloyd_00/sums": (3, 4),
        "lloyd_00/counts": (3,),
    }
    assert {spec.sensitivity for spec in found.values()} == {lattice.SUM_UNITS}
    assert {spec.geometry for spec in found.values()} == {Geometry.VECTOR}


def test_rounds_come_in_order_and_cost_their_shares():
    found = specs(config(data={"public_rows": 9}, **EVERYTHING))
    order = ["outer_product", "weights", "centers", "lloyd_00", "lloyd_01"]
    assert list(dict.fromkeys(name.split("/")[0] for name in found)) == order
    by_round = {name: sum(s.share for path, s in found.items() if path.split("/")[0] == name) for name in order}
    np.testing.assert_allclose([by_round["lloyd_00"], by_round["lloyd_01"]], [0.1, 0.1])
    # sums : counts as in the start, 45 : 10
    assert found["lloyd_00/sums"].share == pytest.approx(0.1 * 45 / 55)


QUALITY = {"quality": {"share": 0.04}}


@pytest.mark.parametrize(("unit", "allocation"), CASES)
def test_quality_is_the_last_round_and_costs_its_share(unit, allocation):
    job = config(privacy={"unit": unit, "allocation": allocation}, data={"public_rows": 9}, **QUALITY, **EVERYTHING)
    found = specs(job)
    assert list(found)[-2:] == ["quality/cost", "quality/sizes"]
    assert [found[name].shape for name in list(found)[-2:]] == [(1,), (3,)]
    assert [found[name].share for name in list(found)[-2:]] == [0.02, 0.02]
    assert {found[name].mechanism for name in list(found)[-2:]} == {LAPLACE if allocation == "paper" else GAUSSIAN}
    assert math.fsum(spec.share for spec in found.values()) == pytest.approx(1.0)


def test_lloyd_rounds_after_a_public_start_leave_quality_its_share():
    job = validated(BASE | {"lloyd": {"steps": 2}} | QUALITY)
    rounds = lloyd.round_specs(job, n_features=4)
    assert [each.path for each in rounds] == [f"feddp_kmeans/{each}" for each in ("lloyd_00", "lloyd_01", "quality")]
    spent = [sum(release.share for release in each.releases) for each in rounds]
    np.testing.assert_allclose(spent, [0.48, 0.48, 0.04])


@pytest.mark.parametrize(("allocation", "sizes"), [("tuned", math.isqrt(2 << 40) + 1), ("paper", 2 << 20)])
def test_sampled_rows_double_what_a_row_does_to_sizes_but_not_to_the_cost(allocation, sizes):
    found = specs(config(privacy={"allocation": allocation}, data={"max_rows_per_client": 5}, **QUALITY))
    assert (found["quality/cost"].sensitivity, found["quality/sizes"].sensitivity) == (1 << 20, sizes)


def test_rounds_bind_every_plan_to_its_step():
    job = config(**EVERYTHING)
    plans = tuple(
        RoundPlan(
            path=each.path, releases=tuple(ReleasePlan(spec=spec, noise_multiplier=1.0) for spec in each.releases)
        )
        for each in feddp_kmeans.round_specs(job, 4, 30)
    )
    plan = PrivacyPlan(unit=PrivacyUnit.RECORD, epsilon=1.0, delta=1e-6, discretization_slack=0.0, rounds=plans)
    rounds = feddp_kmeans.rounds(job, plan)
    assert [each.plan for each in rounds] == list(plans)
    steps = [getattr(each.step, "func", each.step).__name__ for each in rounds]
    assert steps == ["outer_product_step", "weights_step", *["means_step"] * 3]


SERVER = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])


def test_the_first_state_is_framed_by_the_server_data():
    state = feddp_server.initial_state(config(), SERVER, 2)
    np.testing.assert_array_equal(state.frame.lattice.center, [1.0, 2.0])
    assert state.frame.lattice.clipping_norm == pytest.approx(math.sqrt(5.0))
    assert state.releases == ()
    assert state.bounds == ClippingBounds.of_row(state.frame.lattice.clipping_norm)


def test_a_number_and_no_center_frame_it_otherwise():
    state = feddp_server.initial_state(config(clipping={"norm": 7.0, "center": "none"}), SERVER, 2)
    np.testing.assert_array_equal(state.frame.lattice.center, [0.0, 0.0])
    assert state.frame.lattice.clipping_norm == 7.0


def test_the_client_unit_starts_with_bounds_from_pseudo_clients():
    state = feddp_server.initial_state(config(privacy={"unit": "client"}, clipping={"client_rows": 5}), SERVER, 2)
    assert state.samples.shape[1] == 5
    # 5 rows of squared norm 5: the scatter's Frobenius norm lies between that of equal and of orthogonal rows
    assert 25.0 / math.sqrt(2.0) <= state.bounds.scatter <= 25.0


def test_more_clusters_than_server_rows_are_refused():
    with pytest.raises(ConfigError, match="n_clusters must be at most the number of server rows, got 5 clusters and 4"):
        feddp_server.initial_state(validated(BASE | {"n_clusters": 5}), SERVER, 2)


def test_server_rows_that_span_no_ball_are_refused():
    with pytest.raises(
        ConfigError, match=r"clipping\.norm must be between 1e-60 and 1e\+60, but the radius .* is 0\.0"
    ):
        feddp_server.initial_state(config(), np.ones((4, 2)), 2)


def test_a_server_radius_beyond_float64_is_refused():
    with (
        np.errstate(over="ignore"),
        pytest.raises(ConfigError, match=r"clipping\.norm must be between 1e-60 and 1e\+60"),
    ):
        feddp_server.initial_state(config(), np.array([[1e200], [-1e200], [0.0], [1.0]]), 1)


def test_model_is_asked_for_after_the_last_round_only():
    with pytest.raises(ValueError, match="until a round of sums and counts"):
        feddp_server.initial_state(config(), SERVER, 2).model()
