"""Layers of noise in excess, in one pipeline: sums keep exactly the shares that are needed, whoever drops out."""

import json
import pathlib

import numpy as np
import pytest

from schemas.choices import NoiseBy
from schemas.errors import ProtocolError
from schemas.masked.pairwise_messages import PairwiseParams
from schemas.privacy.noise_shares import MOST_LAYERS, ShareLaw
from tests.pipeline.masked.test_masked_rounds import REPLAY, Hall, block_of, rounds_of
from tests.scenes import lake
from tests.scenes.draws import recorded_layers
from transforms.numerics.privacy.noise_layers import layer_keys, layers_from

N_SENDERS, KIND = 30, "record by shard dp_lloyd fast"
LAW = ShareLaw(threshold=2, corrupt=0.05, dropout=0.3, layers=MOST_LAYERS)


@pytest.fixture(scope="module")
def hall(tmp_path_factory):
    return Hall(tmp_path_factory.mktemp("removed"))


def run(hall, *flags, dropped=(), law=LAW):
    """A run in which some senders drop out, and what all senders have drawn."""
    drawn = []
    with recorded_layers(drawn):
        found = hall.run(
            KIND,
            *flags,
            dropped=[number.to_bytes(8, "big") for number in dropped],
            noise_by=NoiseBy.CLIENTS,
            threshold=law.threshold,
            pairwise=PairwiseParams(corrupt=0.05, dropout=0.3),
            shares=law,
            noise_key=hall.secret_uri,
        )
    return *found[:2], drawn


@pytest.mark.parametrize("n_lost", [0, 3, 9])
def test_releases_are_the_plain_sum_and_what_is_kept_of_the_shares(hall, n_lost):
    lost = set(np.random.default_rng(3).permutation(N_SENDERS)[:n_lost].tolist())
    planned, model, drawn = run(hall, dropped=lost)
    names = sorted(hall.senders(KIND))
    present = [name for number, name in enumerate(names) if number not in lost]
    found = {(plan.path, name): (counts, share, first) for plan, name, counts, share, first in drawn}
    counts = LAW.counts(N_SENDERS)
    n_kept = LAW.n_kept(len(present), N_SENDERS)
    assert (counts[0], counts[-1], n_kept) == (29, 20, {0: 0, 3: 2, 9: 6}[n_lost])
    state, block = planned.initial, _block(hall, present)
    for each, releases in zip(planned.rounds, rounds_of(model.releases, planned), strict=True):
        noise = np.zeros(each.plan.size, dtype=np.int64)
        for name in present:
            used, share, first = found[each.plan.path, name]
            assert used == counts
            noise += share
            if n_kept < MOST_LAYERS:
                key = layer_keys(first, MOST_LAYERS)[n_kept]
                noise -= layers_from(key, n_kept + 1, each.plan, counts)
        released = np.concatenate([release.values.ravel() for release in releases])
        np.testing.assert_array_equal(released - noise, each.statistic(block, state))
        for release, plan in zip(releases, each.plan.releases, strict=True):
            factor = (len(present) / counts[n_kept]) ** 0.5
            assert release.plan.noise_multiplier == pytest.approx(plan.noise_multiplier * factor)
        state = each.step(state, tuple(releases))
    np.testing.assert_array_equal(state.model().centers, model.centers)


def _block(hall, present):
    senders = hall.senders(KIND)
    return block_of(KIND, np.concatenate([hall.points[senders[name]] for name in present]))


def test_one_dropout_too_many_stops_the_round(hall):
    with pytest.raises(ProtocolError, match=r"at least 21 (messages|senders)"):
        run(hall, dropped=range(10))


def test_a_retry_draws_the_same_layers(hall):
    _, model, drawn = run(hall, *REPLAY)
    found = {}
    for plan, sender, _, share, first in drawn:
        found.setdefault((plan.path, sender), set()).add((share.tobytes(), first))
    assert all(len(each) == 1 for each in found.values())
    assert len({first for each in found.values() for _, first in each}) == len(found)
    for left, right in zip(model.releases, run(hall)[1].releases, strict=True):
        np.testing.assert_array_equal(left.values, right.values)


def test_without_dropouts_to_pay_for_there_are_no_layers(hall):
    law = ShareLaw(threshold=N_SENDERS, corrupt=0.05, dropout=0.3, layers=MOST_LAYERS)
    assert law.counts(N_SENDERS) == (29,)
    _, model, drawn = run(hall, law=law)
    assert {counts for _, _, counts, _, _ in drawn} == {(29,)}
    assert model.centers.shape[0] == 3


def test_a_fit_says_which_layers_there_are_and_what_it_holds_against(hall, tmp_path):
    section = {"noise_by": "clients", "scheme": "pairwise", "threshold": 2, "excess_noise": "removed"}
    job = lake.job(hall.path, hall.server, trust="masked", masked=section)
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    output = pathlib.Path(json.loads(outcome.out)["output"])
    masked = json.loads((output / "privacy.json").read_text())["masked"]
    assert masked["shares"]["layers"] == MOST_LAYERS
    assert masked["excess_noise"] == "removed"
    assert "neighbors" in masked
    words = [row["words"] for row in masked["coalitions"]]
    assert any("0.05 of the listed senders, once layers in excess are removed" in each for each in words)
    verified = lake.run_command("verify", str(output))
    assert verified.code == 0, verified.err
