"""An accountant that is not ours nor Google's composes every kind of plan: Microsoft's `prv-accountant`.

It gives certain bounds on both sides of the exact epsilon. A plan must not state less than the lower one, and one part
in 200 above the upper one would be a waste. Its model is that of ours: continuous Gaussian noise, and the pair of
randomized response for pure mechanisms. What discrete noise costs is checked in `test_accounting.py`.

Source: Gopi, Lee, Wutschitz (2021), "Numerical composition of differential privacy".
"""

import collections

import prv_accountant
import pytest

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.plan import Mechanism
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.profile.plan import ProfileLaw
from dapple_dp.transforms.clustered_fl.silo_accounting import silo_plan
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.kmeans.protocols import PROTOCOLS, protocol_of
from dapple_dp.transforms.privacy.ledger_filter import fits, spent_epsilon, total
from dapple_dp.transforms.profile.accounting import calibrate as calibrate_profile
from tests.scenes import lake
from tests.scenes.ledgers import gaussian
from tests.scenes.profiles import config as profile_config
from tests.scenes.protocol_jobs import settings_of
from tests.scenes.silos import clustering_params, silo_budget, training_params

PRECISION = 2e-3
"""Part of epsilon by which either bound of the other accountant may miss."""
WASTE = 5e-3
N_FEATURES, N_SERVER = 6, 40


def bounds(mechanisms, epsilon, delta):
    """Lower and upper bound on the epsilon at `delta` of mechanisms, a Counter of a class and its arguments."""
    drawn = [law(*arguments) for law, arguments in mechanisms]
    counts = list(mechanisms.values())
    errors = {"eps_error": PRECISION * epsilon, "delta_error": 1e-4 * delta}
    accountant = prv_accountant.PRVAccountant(drawn, max_self_compositions=counts, **errors)
    lower, _, upper = accountant.compute_epsilon(delta, counts)
    return lower, upper


def check(mechanisms, epsilon, delta):
    lower, upper = bounds(mechanisms, epsilon, delta)
    assert lower <= epsilon <= (1.0 + WASTE) * upper


def mechanisms_of(plan):
    """Returns what a plan composes."""

    def law(release):
        if release.spec.mechanism is Mechanism.DISCRETE_LAPLACE:
            return prv_accountant.PureDPMechanism, (1.0 / release.noise_multiplier,)
        return prv_accountant.GaussianMechanism, (release.noise_multiplier,)

    return collections.Counter(law(release) for each in plan.rounds for release in each.releases)


def job(algorithm, allocation="tuned", **sections):
    """A fit job; files are named, but not read."""
    return validated(
        {
            "experimental": True,
            "algorithm": str(algorithm),
            "data": {"path": "lake", "features": "x", "client_id": "who"},
            "n_clusters": 3,
            "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6, "allocation": allocation},
        }
        | sections
    )


SERVER = {"server_data": {"path": "server"}, "clipping": {"norm": "server_radius"}}
STEPS = {"lloyd": {"steps": 4}}


def lloyd(start):
    options = {"init": start, "domain": [-9, 9], "steps": 5}
    server = {"server_data": {"path": "server"}} if start == "feddp_init" else {}
    return job(Algorithm.DP_LLOYD, dp_lloyd=options, **server)


JOBS = {each: lake.fit_of(lake.job("lake", "server", **settings_of(each))) for each in PROTOCOLS} | {
    "feddp tuned": job(Algorithm.FEDDP_KMEANS, **SERVER, **STEPS, quality={}),
    "feddp paper": job(Algorithm.FEDDP_KMEANS, "paper", **SERVER, **STEPS, quality={}),
    "dp_lloyd, best": lloyd("best"),
    "dp_lloyd, feddp_init": lloyd("feddp_init"),
    "dp_lloyd, central_tree": lloyd("central_tree"),
}


@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 1e-9), (8.0, 1e-5)])
@pytest.mark.parametrize("name", JOBS)
def test_plans_of_fits(name, epsilon, delta):
    protocol, config = protocol_of(JOBS[name].algorithm), JOBS[name]
    specs = protocol.round_specs(config, N_FEATURES, N_SERVER)
    plan = accounting.calibrate(config.privacy.unit, specs, epsilon, delta, protocol.allocation(config))
    check(mechanisms_of(plan), plan.epsilon, delta)


def test_a_plan_that_understates_would_be_seen():
    protocol, config = protocol_of(Algorithm.FEDDP_KMEANS), JOBS["feddp paper"]
    specs = protocol.round_specs(config, N_FEATURES, N_SERVER)
    plan = accounting.calibrate(config.privacy.unit, specs, 1.0, 1e-6, protocol.allocation(config))
    for factor in (0.99, 1.02):
        with pytest.raises(AssertionError):
            check(mechanisms_of(plan), factor * plan.epsilon, 1e-6)
    fewer = mechanisms_of(plan)
    fewer[next(iter(fewer))] += 1
    assert bounds(fewer, 1.0, 1e-6)[0] > plan.epsilon


@pytest.mark.parametrize(
    ("selections", "n_rows", "epsilon", "first"),
    [(3, 600, 1.5, 2.0), (0, 2000, 5.0, 1.0)],
)
def test_plans_of_clients_that_train(selections, n_rows, epsilon, first):
    budget = silo_budget(epsilon, "pld", first_round_noise_ratio=first)
    training = training_params(rounds=20, batch_size=100)
    plan = silo_plan(n_rows, training, clustering_params(selections), budget)
    mechanisms = collections.Counter()
    for event in plan.events:
        if event.select_epsilon is not None:
            # A row more raises each count by 0 or 1, which halves the epsilon of a selection.
            mechanisms[prv_accountant.PureDPMechanism, (event.select_epsilon / 2.0,)] += event.count
        else:
            arguments = (event.sampling_rate, event.noise_multiplier)
            mechanisms[prv_accountant.PoissonSubsampledGaussianMechanism, arguments] += event.count
    check(mechanisms, plan.epsilon, budget.delta)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_plans_of_profiles(unit):
    plan = calibrate_profile(profile_config(unit), 5)
    assert {each.law for each in plan.events} == {ProfileLaw.GAUSSIAN, ProfileLaw.GAUSSIAN_THRESHOLD}
    laws = ((prv_accountant.GaussianMechanism, (each.noise_multiplier,)) for each in plan.events)
    thresholds = sum(each.threshold_delta for each in plan.events)
    check(collections.Counter(laws), plan.epsilon, plan.delta - thresholds)


def test_runs_that_a_ledger_lets_in():
    limit = Limit(epsilon=2.0, delta=1e-6)
    multipliers = [9.0, 7.5, 12.0] * 4
    spent = total(limit, [gaussian(each) for each in multipliers])
    epsilon, delta = spent_epsilon(limit, spent)
    laws = collections.Counter((prv_accountant.GaussianMechanism, (each,)) for each in multipliers)
    check(laws, epsilon, delta)
    assert fits(Limit(epsilon=1.001 * epsilon, delta=delta), spent)
    lower, _ = bounds(laws, epsilon, delta)
    assert not fits(Limit(epsilon=lower, delta=delta), spent)
