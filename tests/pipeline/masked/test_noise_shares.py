"""Noise that clients split, in one pipeline: sums of shares, dropouts, retries, and what the graph may not do."""

import json
import pathlib

import numpy as np
import pytest

from dapple_dp.schemas.choices import NoiseBy
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from tests.pipeline.masked.test_masked_rounds import REPLAY, Hall, rounds_of
from tests.scenes import lake

PAIRWISE = PairwiseParams(corrupt=0.05, dropout=0.3)
N_SENDERS = 30
LAWS = {
    "shared secret": ShareLaw(threshold=21),
    "pairwise": ShareLaw(threshold=2, corrupt=0.05, dropout=0.3),
}
COUNTED = {"shared secret": 21, "pairwise": 20}
"""Of 30 senders 21 are left, and 1 may collude; with a shared secret nobody may."""


@pytest.fixture(scope="module")
def hall(tmp_path_factory):
    return Hall(tmp_path_factory.mktemp("split"))


def run(hall, masks, *flags, dropped=(), kind="record by shard"):
    """A run in which some senders drop out, as `Hall.run` says; senders are numbers in the order of their names."""
    pairwise = PAIRWISE if masks == "pairwise" else None
    names = sorted(hall.senders(kind))
    lost = [[number.to_bytes(8, "big") if pairwise else names[number] for number in each] for each in dropped]
    return hall.run(
        kind,
        *flags,
        dropped=lost,
        noise_by=NoiseBy.CLIENTS,
        threshold=LAWS[masks].threshold,
        pairwise=pairwise,
        shares=LAWS[masks],
        noise_key=hall.secret_uri,
    )


@pytest.mark.parametrize("masks", LAWS)
@pytest.mark.parametrize("kind", ["record by shard", "record by shard dp_lloyd packed"])
def test_releases_are_the_plain_sum_and_the_shares_of_those_present(hall, kind, masks):
    """Nobody is missing in every second round, and nine in the others."""
    lost = [[], np.random.default_rng(3).permutation(N_SENDERS)[:9].tolist()]
    planned, model, witness = run(hall, masks, dropped=lost, kind=kind)
    names = sorted(hall.senders(kind))
    state, shares = planned.initial, {(path, name): share for path, name, _, share in witness.shares}
    assert witness.draws == []
    for index, releases in enumerate(rounds_of(model.releases, planned)):
        each, gone = planned.rounds[index], {names[number] for number in lost[index % 2]}
        present = [name for name in names if name not in gone]
        released = np.concatenate([release.values.ravel() for release in releases])
        noise = sum(shares[each.plan.path, name] for name in present)
        np.testing.assert_array_equal(released - noise, each.statistic(hall.present(kind, gone), state))
        assert all(np.count_nonzero(shares[each.plan.path, name]) > 0.9 * noise.size for name in names)
        for release, plan in zip(releases, each.plan.releases, strict=True):
            factor = (len(present) / COUNTED[masks]) ** 0.5
            assert release.plan.noise_multiplier == pytest.approx(plan.noise_multiplier * factor)
        state = each.step(state, tuple(releases))
    np.testing.assert_array_equal(state.model().centers, model.centers)
    assert {counted for *_, counted, _ in witness.shares} == {COUNTED[masks]}


@pytest.mark.parametrize("masks", LAWS)
def test_one_dropout_too_many_stops_the_round(hall, masks):
    with pytest.raises(ProtocolError, match=r"(fewer than 21 messages|at least 21 senders)"):
        run(hall, masks, dropped=[range(10)])


@pytest.mark.parametrize("masks", LAWS)
def test_a_retry_draws_the_same_shares(hall, masks):
    planned, model, witness = run(hall, masks, *REPLAY)
    found = {}
    for path, sender, _, share in witness.shares:
        found.setdefault((path, sender), set()).add(share.tobytes())
    assert len(found) == len(planned.rounds) * N_SENDERS
    assert all(len(each) == 1 for each in found.values())
    assert len({raw for each in found.values() for raw in each}) == len(found)
    again = run(hall, masks)[1]
    for left, right in zip(model.releases, again.releases, strict=True):
        np.testing.assert_array_equal(left.values, right.values)


@pytest.mark.parametrize("masks", LAWS)
def test_a_fit_says_who_is_kept_from_what(hall, tmp_path, masks):
    section = {"noise_by": "clients", "threshold": 21, "corrupt": 0.0}
    if masks == "pairwise":
        section |= {"scheme": "pairwise", "threshold": 2, "corrupt": 0.05, "dropout": 0.3}
    job = lake.job(hall.path, hall.server, trust="masked", masked=section)
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    output = pathlib.Path(json.loads(outcome.out)["output"])
    privacy = json.loads((output / "privacy.json").read_text())
    assert privacy["neighboring_relation"] == "zeroed_out"
    assert 0.0 < privacy["masked"]["shares"].pop("closeness_epsilon") < 1e-50
    assert privacy["masked"]["shares"]["threshold"] == section["threshold"]
    holds = {row["parties"]: row["holds"] for row in privacy["masked"]["coalitions"]}
    assert list(holds.values())[-1] is False
    assert next(iter(holds.values())) is True
    assert all(
        "IND-CDP-MPC in the presence of a semi-honest" in row["words"]
        for row in privacy["masked"]["coalitions"]
        if row["holds"]
    )
    verified = lake.run_command("verify", str(output))
    assert verified.code == 0, verified.err


def test_shares_that_are_all_of_the_noise_are_warned_of_in_job_and_report(hall, tmp_path):
    job = lake.job(hall.path, hall.server, trust="masked", masked={"noise_by": "clients", "corrupt": 0.0})
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    assert "masked.threshold 1, a sum of m messages" in outcome.err
    page = pathlib.Path(json.loads(outcome.out)["output"], "report.html").read_text()
    assert "masked.threshold 1, a sum of m messages" in page
    assert "Shares of the noise smaller than all of it" in page
