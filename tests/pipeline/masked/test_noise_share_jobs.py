"""Noise that clients split, by jobs of their own: sums of shares, countersigned sums, and a server that shows two."""

import contextlib
import json
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.numerics.masked import noise_shares
from tests.pipeline.masked.test_pairwise_jobs import EVERYBODY, HOLDERS, LLOYD, Parties
from tests.scenes import lake, ledgers
from tests.scenes.parties import Rewound, with_identities

pytestmark = pytest.mark.slow
NAMES = [f"holder-{holder}" for holder in EVERYBODY]
SCHEMES = {
    "shared_secret": {"scheme": "shared_secret", "corrupt": 0.0, "threshold": 8},
    "pairwise": {"scheme": "pairwise", "corrupt": 0.05, "dropout": 0.3, "threshold": 2},
}
COUNTED = {"shared_secret": {8}, "pairwise": {7, 6}}
"""Of ten senders with keys seven are left, of nine six."""
SHORT = LLOYD | {"dp_lloyd": LLOYD["dp_lloyd"] | {"steps": 2}}


class SplitParties(Parties):
    """Three hospitals that split the noise among their ten senders; with a shared secret each has a copy of it."""

    def __init__(self, folder, scheme):
        super().__init__(folder, masked=SCHEMES[scheme] | {"noise_by": "clients"}, **SHORT)
        self.scheme, self.shares = scheme, []
        if scheme == "shared_secret":
            for holder in EVERYBODY:
                (folder / f"own-{holder}").mkdir()
                shutil.copyfile(folder / "secret-0", folder / f"own-{holder}" / "secret")
                (folder / f"own-{holder}" / "secret").chmod(0o600)
                path = folder / f"job-{holder}.yaml"
                job = yaml.safe_load(path.read_text())
                job["masked"]["secret_uri"] = str(folder / f"own-{holder}" / "secret")
                path.write_text(yaml.safe_dump(job))
        with_identities(self, NAMES)

    def collect(self):
        outcome = self.clients_job("unmask", "collector", "--run_id", "run")
        if outcome.code == 0 and not pathlib.Path(self.exchange, "aggregator.json").exists():
            assert self.aggregate().code == 0
        return outcome

    def to_the_sum(self, holders=EVERYBODY):
        """All legs of a round until its sum is in the exchange."""
        for _ in range(3 if self.scheme == "pairwise" else 1):
            self.leg(holders)

    def answers(self, holders=EVERYBODY):
        """Countersignatures, and with pairwise masks the shares of secrets."""
        self.leg(holders, close=False)
        if self.scheme == "pairwise":
            self.leg(holders, close=False)

    def play(self, quiet):
        assert self.collect().code == 0
        for index in range(2):
            holders = [holder for holder in EVERYBODY if holder not in quiet.get(index, ())]
            self.to_the_sum(holders)
            self.answers(holders)
            outcome = self.collect()
            assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)


@contextlib.contextmanager
def recorded_shares(into):
    """Returns what senders draw, by path and name; a process that draws again must draw the same."""
    real = noise_shares.draw_share

    def draw(key, sender, plan, statistic, counted):
        found = real(key, sender, plan, statistic, counted)
        into.append((plan.path, sender, counted, found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_shares, "draw_share", draw)
        yield


QUIET = {1: (2,)}
"""In the second round one of the ten senders is missing."""


@pytest.fixture(scope="module", params=SCHEMES)
def played(tmp_path_factory, request):
    parties = SplitParties(tmp_path_factory.mktemp("split"), request.param)
    with recorded_shares(parties.shares):
        parties.summary = parties.play(QUIET)
    return parties


def test_releases_are_plain_sums_and_the_shares_of_those_present(played):
    tables = [pq.read_table(f"{played.released}/result/{name}") for name in lake.RELEASED_FILES]
    planned, model = plan_files(validated(played.job)), model_from_tables(*tables)
    remaining, state = list(model.releases), planned.initial
    shares = {(path, sender): (counted, share) for path, sender, counted, share in played.shares}
    assert {counted for counted, _ in shares.values()} <= COUNTED[played.scheme]
    for index, each in enumerate(planned.rounds):
        releases = tuple(remaining.pop(0) for _ in each.plan.releases)
        holders = [holder for holder in EVERYBODY if holder not in QUIET.get(index, ())]
        n_present = sum(HOLDERS[holder] for holder in holders)
        drawn = [share for (path, _), (_, share) in shares.items() if path == each.plan.path]
        assert len(drawn) == n_present
        plain = sum(each.statistic(played.blocks[holder], state) for holder in holders)
        released = np.concatenate([release.values.ravel() for release in releases])
        np.testing.assert_array_equal(released - sum(drawn), plain)
        state = each.step(state, releases)
    np.testing.assert_array_equal(model.centers, state.model().centers)


def test_the_result_names_the_neighbors_and_the_coalitions(played):
    privacy = json.loads(pathlib.Path(played.summary["output"], "privacy.json").read_text())
    assert privacy["neighboring_relation"] == "zeroed_out"
    assert privacy["masked"]["noise_by"] == "clients"
    assert len(privacy["masked"]["coalitions"]) == 3
    page = pathlib.Path(played.summary["output"], "report.html").read_text()
    assert "IND-CDP-MPC" in page
    verified = lake.run_command("verify", played.summary["output"])
    assert verified.code == 0, verified.err


def test_a_share_is_the_same_whenever_it_is_drawn(played):
    found = {}
    for path, sender, _, share in played.shares:
        found.setdefault((path, sender), set()).add(share.tobytes())
    assert all(len(each) == 1 for each in found.values())
    assert len({next(iter(each)) for each in found.values()}) == len(found)


def state_of(parties, holder):
    job = yaml.safe_load((parties.folder / f"job-{holder}.yaml").read_text())["masked"]
    return PartyState.of(job["state_uri"], job["secret_uri"], f"holder-{holder}")


def test_a_noise_key_lies_in_the_state_of_its_party_alone(played):
    if played.scheme == "pairwise":
        return
    keys = [pathlib.Path(state_of(played, holder).noise_uri).read_bytes() for holder in EVERYBODY]
    assert len(set(keys)) == len(keys)
    for path in pathlib.Path(played.exchange).rglob("*"):
        assert path.is_dir() or not any(key in path.read_bytes() for key in keys)


@pytest.fixture(scope="module", params=SCHEMES)
def kept(tmp_path_factory, request):
    parties = SplitParties(tmp_path_factory.mktemp("summed"), request.param)
    assert parties.collect().code == 0
    parties.to_the_sum()
    found = Rewound(parties, tmp_path_factory.mktemp("kept"))
    found.keep("summed")
    return found


@pytest.fixture
def summed(kept):
    """Parties whose first round has its sum."""
    return kept.at("summed")


def test_nothing_is_answered_before_a_quorum_has_countersigned(summed):
    outcome = summed.collect()
    assert outcome.code == 5
    assert "at least 2 clients must have countersigned" in outcome.err
    assert json.loads(summed.upload(0).out)["leg"] == "countersigned"
    if summed.scheme == "pairwise":
        outcome = summed.upload(0)
        assert outcome.code == 5
        assert "at least 2 clients must have countersigned" in outcome.err
        assert not pathlib.Path(summed.released, "00_shares").exists()
    assert summed.collect().code == 5
    assert json.loads(summed.upload(1).out)["leg"] == "countersigned"
    if summed.scheme == "pairwise":
        summed.leg(close=False)
        summed.upload(2)
    assert summed.collect().code == 0


def second_sum(parties):
    """A second sum with the aggregator's signature, of the others: the server keeps it beside the first one."""
    exchange = pathlib.Path(parties.exchange)
    (folder,) = exchange.glob("00_*")
    first = (folder / "sum.parquet").read_bytes()
    (folder / "sum.parquet").unlink()
    gone = folder / "messages" / "holder-2.sealed"
    message = gone.read_bytes()
    gone.unlink()
    assert parties.aggregate().code == 0
    second = (folder / "sum.parquet").read_bytes()
    gone.write_bytes(message)
    assert first != second
    return folder, first, second


def test_a_server_that_shows_two_lists_gets_neither_answered(summed):
    """One of ten senders is in the one list only: the difference of both sums would be its statistic and one share."""
    folder, first, second = second_sum(summed)
    (folder / "sum.parquet").write_bytes(first)
    assert summed.upload(0).code == 0
    (folder / "sum.parquet").write_bytes(second)
    outcome = summed.upload(0)
    assert outcome.code == 5
    other = summed.clients_job("upload", 1, "--client", "holder-1", released=str(summed.folder / "apart"))
    assert other.code == 0, other.err
    outcome = summed.collect()
    assert outcome.code == 5
    assert "aggregator must show all clients the same sum" in outcome.err
    assert "holder-0 has countersigned" in outcome.err
    (folder / "countersigned" / "holder-0.json").unlink()
    outcome = summed.collect()
    assert outcome.code == 5
    assert "at least 2 clients must have countersigned" in outcome.err
    assert not pathlib.Path(summed.released, "00.parquet").exists()


def test_a_countersignature_of_another_party_does_not_count(summed):
    (folder,) = pathlib.Path(summed.exchange).glob("00_*")
    assert summed.upload(0).code == 0
    shutil.copyfile(folder / "countersigned" / "holder-0.json", folder / "countersigned" / "holder-1.json")
    outcome = summed.collect()
    assert outcome.code == 5
    assert "must be signed by holder-1 as countersigned" in outcome.err
    assert "at least 2 clients must have countersigned" in outcome.err
    (folder / "countersigned" / "holder-1.json").unlink()
    (folder / "countersigned" / "outsider.json").write_text("{}")
    assert summed.upload(1).code == 0
    if summed.scheme == "pairwise":
        summed.leg([0, 1, 2], close=False)
        summed.upload(2)
    outcome = summed.collect()
    assert outcome.code == 0, outcome.err


def test_a_round_with_too_few_shares_is_not_closed(tmp_path):
    parties = SplitParties(tmp_path, "shared_secret")
    assert parties.collect().code == 0
    parties.leg([0], close=False)
    outcome = parties.aggregate()
    assert outcome.code == 5
    assert "fewer than 8 messages" in outcome.err


def test_a_party_sends_no_other_share_for_the_same_round(tmp_path):
    parties = SplitParties(tmp_path, "shared_secret")
    assert parties.collect().code == 0
    parties.leg([0], close=False)
    parties.leg([1], close=False)
    sent = {path: path.read_bytes() for path in pathlib.Path(parties.exchange).rglob("messages/*")}
    pathlib.Path(state_of(parties, 0).noise_uri).write_bytes(bytes(range(100, 132)))
    changed = parties.blocks[1].points.copy()
    changed[0, 0] += 0.5
    parties.write_rows(1, changed)
    for holder in (0, 1):
        assert parties.upload(holder).code == 0
    assert {path: path.read_bytes() for path in pathlib.Path(parties.exchange).rglob("messages/*")} == sent


def test_the_ledger_does_not_mix_zeroed_out_units_with_others(tmp_path):
    parties = SplitParties(tmp_path, "shared_secret")
    ledger = ledgers.new_ledger(tmp_path, Limit(epsilon=10.0, delta=1e-5), "homes")
    job = yaml.safe_load((tmp_path / "aggregate.yaml").read_text())
    job |= {"ledger": ledger.path, "name": "homes", "unit": "record"}
    (tmp_path / "aggregate.yaml").write_text(yaml.safe_dump(job))
    assert parties.collect().code == 0
    parties.to_the_sum()
    (charge,) = ledgers.charges_of(ledger.entries(), "homes")
    assert charge.neighboring_relation == "zeroed_out"
    with pytest.raises(LedgerRefusedError, match="must protect against zeroed_out, got add_or_remove_one"):
        ledger.reserve("other", ledgers.charge(0.1, dataset="homes"), {})


def test_jobs_without_signatures_are_refused(tmp_path):
    parties = Parties(tmp_path, masked=SCHEMES["shared_secret"] | {"noise_by": "clients"}, **SHORT)
    outcome = parties.upload(0)
    assert outcome.code == 2
    assert "masked.noise_by clients needs masked.parties" in outcome.err


def test_an_aggregator_without_signatures_is_refused(summed):
    job = yaml.safe_load((summed.folder / "aggregate.yaml").read_text())
    (summed.folder / "aggregate.yaml").write_text(
        yaml.safe_dump({name: job[name] for name in job if name not in ("parties", "identity_uri")})
    )
    outcome = summed.aggregate()
    assert outcome.code in (2, 5)
