"""Noise of clients that run DP-SGD grows with what it must hide and with what its accountant cannot see."""

import pytest

from dapple_dp.schemas.choices import Adjacency
from dapple_dp.transforms.clustered_fl.silo_accounting import silo_plan
from tests.scenes.silos import clustering_params, silo_budget, training_params


def test_modern_accountants_need_less_noise():
    plans = {
        name: silo_plan(6600, training_params(), clustering_params(), silo_budget(accountant=name))
        for name in ("rdp", "pld")
    }
    assert plans["rdp"].noise_multiplier == pytest.approx(1.311, abs=1e-3)
    assert plans["pld"].noise_multiplier == pytest.approx(1.231, abs=2e-3)


def test_replacing_a_row_needs_more_noise():
    training = training_params(rounds=40, batch_size=50)
    added, replaced = (
        silo_plan(1000, training, clustering_params(), silo_budget(10.0, "pld", adjacency=adjacency)).noise_multiplier
        for adjacency in Adjacency
    )
    assert 1.5 < replaced / added < 2.0


def test_noise_of_the_first_round_buys_noise_of_the_others():
    plans = [
        silo_plan(
            1000, training_params(40, 50), clustering_params(), silo_budget(4.0, "rdp", first_round_noise_ratio=ratio)
        )
        for ratio in (1.0, 2.0)
    ]
    assert plans[1].noise_multiplier < plans[0].noise_multiplier
    assert plans[1].first_round_multiplier == 2.0 * plans[1].noise_multiplier > plans[0].first_round_multiplier
