"""Pairwise masks by jobs of their own: keys, letters, messages and shares, who may drop out where, what is refused."""

import io
import json
import pathlib
import stat

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.masked import aggregate, pairwise_upload, unmask
from dapple_dp.pipelines.masked.clients_role import SHARES
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, Leg, sent_from_table
from dapple_dp.schemas.privacy.release_table import releases_from_table
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.sealing import Sealing
from dapple_dp.transforms.numerics.masked.public_keys import private_key, unseal
from tests.pipeline.privacy.test_secrets import spellings_in, unpacked
from tests.scenes import lake
from tests.scenes.draws import recorded_draws
from tests.scenes.parties import ExchangingParties, Rewound, enroll, opened
from tests.statistical.test_mask_uniformity import FRESH, looks_uniform

pytestmark = pytest.mark.slow
HOLDERS = (7, 2, 1)
EVERYBODY = (0, 1, 2)
"""Senders of each holder, ten in all: row groups, or clients."""
SENDER_ROWS = 12
SECRETS = [bytes(range(start, start + 32)) for start in (11, 61, 111)]
LLOYD = {
    "algorithm": "dp_lloyd",
    "dp_lloyd": {"domain": [-2.0, 7.0], "init": "sphere_packing", "steps": 3},
    "server_data": "none",
}


class Parties(ExchangingParties):
    """Three holders with rows, a job and a secret each, an aggregator, and the folders between them."""

    def __init__(self, folder, unit="record", **settings):
        super().__init__(folder)
        self.draws, self.blocks = [], []
        server = lake.write_server(folder / "server.parquet")
        for holder, n_senders in enumerate(HOLDERS):
            points = lake.mixture(n_senders * SENDER_ROWS, seed=holder)
            clients = np.arange(len(points)) // SENDER_ROWS
            offsets = np.arange(0, len(points) + 1, SENDER_ROWS) if unit == "client" else None
            self.blocks.append(lake.ClientBlock(points, offsets))
            self.write_rows(holder, points, clients if unit == "client" else None)
            job = lake.job(str(folder / f"lake-{holder}"), server, unit, trust="masked") | settings
            if job["algorithm"] == "dp_lloyd":
                job["clipping"] = {"client_rows": SENDER_ROWS} if unit == "client" else {}
                del job["feddp_kmeans"]
            masked = {"scheme": "pairwise", "threshold": 2} | settings.get("masked", {})
            own = {"secret_uri": lake.write_key(folder / f"secret-{holder}", SECRETS[holder])}
            job["masked"] = masked | own | {"state_uri": str(folder / f"state-{holder}")}
            (folder / f"job-{holder}.yaml").write_text(yaml.safe_dump(job))
            enroll(folder / f"job-{holder}.yaml", f"holder-{holder}", "")
        self.job = job
        config = {"key_uri": lake.write_key(folder / "aggregator.key"), "threshold": 2}
        (folder / "aggregate.yaml").write_text(yaml.safe_dump(config))

    def write_rows(self, holder, points, clients=None):
        """A row group per sender, or files in which clients are split, which are grouped for good."""
        if clients is None:
            lake.write_files(self.folder / f"lake-{holder}", [lake.table_of(points)], SENDER_ROWS)
            return
        halves = [lake.table_of(points[half::2], clients[half::2]) for half in (0, 1)]
        data = {"path": lake.write_files(self.folder / f"raw-{holder}", halves), "features": "x"}
        job = {"data": data | {"client_id": "client_id"}, "prepare": {"shards": 1}}
        (self.folder / "prepare.yaml").write_text(yaml.safe_dump(job))
        words = ("--config", str(self.folder / "prepare.yaml"), "--output", str(self.folder / f"lake-{holder}"))
        assert lake.run_command("prepare", *words).code == 0

    def upload(self, holder):
        return self.clients_job("upload", holder, "--client", f"holder-{holder}")

    def shares(self, index):
        """Returns what was handed out in a round, as the party that unmasks reads it."""
        plan = Exchange(self.exchange).plan()
        own, path = private_key(SECRETS[0], plan.nonce, SHARES), plan.rounds[index].path
        files = sorted(pathlib.Path(self.released, f"{index:02d}_shares").glob("*.sealed"))
        opened = [unseal(file.read_bytes(), own, encode_label(path, file.name)) for file in files]
        return [row for text in opened for row in sent_from_table(pq.read_table(io.BytesIO(text)), HandedOut, path)]

    def leg(self, holders=EVERYBODY, *, close=True):
        """One leg of those who take part in it, and the aggregator's list."""
        for holder in holders:
            outcome = self.upload(holder)
            assert outcome.code == 0, outcome.err
        if close:
            outcome = self.aggregate()
            assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    def play(self, quiet):
        """All rounds; `quiet` says who is silent from which leg on."""
        assert self.unmask().code == 0
        for index in range(len(plan_files(validated(self.job)).rounds)):
            gone = set()
            for leg in Leg:
                gone |= set(quiet.get((index, leg), ()))
                self.leg(sorted(set(EVERYBODY) - gone), close=leg is not Leg.SHARES)
            outcome = self.unmask()
            assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)


QUIET = {(1, Leg.MESSAGES): (2,), (2, Leg.LETTERS): (2,), (2, Leg.MESSAGES): (1,)}
"""In the second round one of ten senders is gone after it has shared; in the third one before, and two after."""
PRESENT = {0: (0, 1, 2), 1: (0, 1), 2: (0,)}


@pytest.fixture(scope="module", params=["feddp_kmeans", "dp_lloyd"])
def algorithm(request):
    return {} if request.param == "feddp_kmeans" else LLOYD


@pytest.fixture(scope="module", params=["record", "client"])
def played(tmp_path_factory, request, algorithm):
    """A run in which nobody, one sender, and 30% of the senders are missing."""
    parties = Parties(tmp_path_factory.mktemp("pairwise"), request.param, **algorithm)
    with recorded_draws(parties.draws):
        parties.summary = parties.play(QUIET)
    return parties


def test_releases_are_plain_sums_of_those_present_and_the_aggregators_noise(played):
    tables = [pq.read_table(f"{played.released}/result/{name}") for name in lake.RELEASED_FILES]
    planned, model = plan_files(validated(played.job)), model_from_tables(*tables)
    remaining, state = list(model.releases), planned.initial
    for index, each in enumerate(planned.rounds):
        releases = tuple(remaining.pop(0) for _ in each.plan.releases)
        plain = sum(each.statistic(played.blocks[holder], state) for holder in PRESENT[index])
        released = np.concatenate([release.values.ravel() for release in releases])
        np.testing.assert_array_equal(released - played.draws[index], plain)
        state = each.step(state, releases)
    np.testing.assert_array_equal(model.centers, state.model().centers)
    assert len(played.draws) == len(planned.rounds) == 3
    privacy = json.loads(pathlib.Path(played.summary["output"], "privacy.json").read_text())
    assert (privacy["masked"]["scheme"], privacy["masked"]["roles"]) == ("pairwise", "jobs of their own")


def test_a_client_is_shared_out_by_its_seed_or_by_its_key(played):
    exchange = PairwiseExchange(played.exchange)
    for index, holders in PRESENT.items():
        files = sorted(pathlib.Path(played.released, f"{index:02d}_shares").glob("*.sealed"))
        assert [file.stem for file in files] == [f"holder-{holder}" for holder in holders]
        shares = played.shares(index)
        present = {int.from_bytes(sender, "big") for sender in exchange.read_sum(index)[0].senders}
        assert len(present) == sum(HOLDERS[holder] for holder in holders)
        assert all(each.present is (each.owner in present) for each in shares)
        assert len({each[:2] for each in shares}) == len(shares)
        assert {each.holder for each in shares} == present


def test_the_exchange_holds_uniform_numbers_and_no_secret(played):
    words = played.words(3)
    assert looks_uniform(words, FRESH)
    assert len(np.unique(words)) == len(words)
    shares = [each.share for index in range(3) for each in played.shares(index)]
    sealed = [path.read_bytes() for path in pathlib.Path(played.released).glob("*_shares/*")]
    assert not any(share in raw for share in shares for raw in sealed)
    for path in pathlib.Path(played.exchange).rglob("*.parquet"):
        table = str(pq.read_table(path).to_pylist())
        raw = path.read_bytes()
        for secret in (*SECRETS, lake.KEY):
            assert not spellings_in(raw, secret), path
        assert not any(share in raw or repr(share)[2:-1] in table for share in shares), path
        assert "lake-" not in table, path


def test_no_name_key_letter_or_message_occurs_twice(played):
    exchange, found = PairwiseExchange(played.exchange), []
    for index in range(3):
        found += [raw for each in exchange.keys(index) for raw in each]
        found += [each.sealed for each in exchange.letters(index)]
    assert len(set(found)) == len(found)


@pytest.fixture(scope="module")
def legs(tmp_path_factory):
    """A run when it is open, and when its first two legs are closed."""
    parties = opened(Parties(tmp_path_factory.mktemp("legs"), **LLOYD))
    found = Rewound(parties, tmp_path_factory.mktemp("kept"))
    found.keep("opened")
    for leg in (Leg.KEYS, Leg.LETTERS):
        parties.leg()
        found.keep(leg)
    return found


@pytest.fixture
def parties(legs):
    return legs.at("opened")


def files_of(parties, leg):
    return {path.name: path.read_bytes() for path in pathlib.Path(parties.exchange).rglob(f"{leg}/*")}


def test_every_leg_taken_again_sends_the_same_bytes(parties):
    for leg in Leg:
        assert parties.leg(close=False)["leg"] == leg
        folder = pathlib.Path(parties.released if leg is Leg.SHARES else parties.exchange)
        sent = {path: path.read_bytes() for path in folder.rglob(f"*{leg}/*")}
        assert parties.leg([1], close=False)["leg"] == leg
        assert {path: path.read_bytes() for path in folder.rglob(f"*{leg}/*")} == sent
        assert leg is Leg.SHARES or parties.aggregate().code == 0


def test_rows_that_change_during_a_round_are_those_of_its_first_leg(legs):
    """All legs are of one statistic: a refusal would reveal that rows have changed, and would lose the party."""
    parties = legs.at(Leg.KEYS)
    parties.write_rows(2, parties.blocks[2].points + 0.5)
    parties.leg()
    with recorded_draws(parties.draws):
        parties.leg()
    parties.leg(close=False)
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err
    first = plan_files(validated(parties.job))
    releases = releases_from_table(pq.read_table(f"{parties.released}/00.parquet"))
    released = np.concatenate([release.values.ravel() for release in releases])
    plain = sum(first.rounds[0].statistic(block, first.initial) for block in parties.blocks)
    np.testing.assert_array_equal(released - parties.draws[0], plain)


def test_too_few_do_not_close_a_leg(parties):
    def refused(sentence):
        outcome = parties.aggregate()
        assert outcome.code == 5
        assert sentence in outcome.err

    parties.leg([1], close=False)
    refused("fewer than 3 clients have sent theirs")
    parties.leg([0, 2])
    parties.leg([1, 2], close=False)
    refused("fewer than 7 clients have sent theirs")
    parties.leg([0])
    parties.leg([1], close=False)
    refused("fewer than 7 messages")
    parties.leg([0])
    parties.leg([1], close=False)
    outcome = parties.unmask()
    assert outcome.code == 5
    assert "neighbors of every client must hand out shares, got fewer; wait" in outcome.err
    assert not pathlib.Path(parties.released, "00.parquet").exists()
    outcome = parties.upload(2)
    assert outcome.code == 5
    assert "--client is not in the sum yet" in outcome.err
    parties.leg([0], close=False)
    assert json.loads(parties.unmask().out)["round"] == 1


def test_clients_that_come_late_wait_for_the_next_round(parties):
    parties.leg([0, 1])
    outcome = parties.upload(2)
    assert outcome.code == 5
    assert "--client must have sent keys before they were listed" in outcome.err
    parties.leg([0])
    outcome = parties.upload(1)
    assert outcome.code == 5
    assert "--client must have sent letters before they were listed" in outcome.err


@pytest.mark.parametrize(("what", "before"), [("keys", "opened"), ("letters", Leg.KEYS), ("sum", Leg.LETTERS)])
def test_a_second_list_is_not_answered(legs, what, before):
    """An aggregator that closes a leg again, with others in it, gets nothing for it from any client."""
    parties = legs.at(before)
    parties.leg((0, 1))
    assert parties.upload(0).code == 0
    (listed,) = pathlib.Path(parties.exchange).glob(f"00_*/{what}.parquet")
    listed.unlink()
    assert parties.upload(2).code == 0
    assert parties.aggregate().code == 0
    outcome = parties.upload(1)
    assert outcome.code == 5
    assert f"00.{what} must be written once, got other content for it" in outcome.err


def test_messages_of_strangers_and_of_senders_without_shares_are_left_out(legs):
    parties = legs.at(Leg.KEYS)
    parties.leg([0, 1])
    parties.leg([0, 1], close=False)
    exchange = PairwiseExchange(parties.exchange)
    sent = parties.read(0, exchange.message_files(0)[0])
    sealing = Sealing(receiver=exchange.aggregator_key(), secret_uri=str(parties.folder / "aggregator.key"))
    stranger = ({*range(10)} - {each.sender for each in exchange.letters(0)}).pop()
    numbers = {"stranger": stranger.to_bytes(8, "big"), "thief": sent.senders[0]}
    for name, number in numbers.items():
        exchange.send(0, name, MaskedMessages((number,), (b"",), sent.values[:1]), sealing)
    outcome = parties.aggregate()
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["left_out"] == [f"00_lloyd_00/messages/{name}.sealed" for name in sorted(numbers)]
    assert len(exchange.read_sum(0)[0].senders) == 9


def test_keys_that_are_listed_must_be_the_clients_own(legs):
    parties = legs.at(Leg.KEYS)
    (listed,) = pathlib.Path(parties.exchange).glob("00_*/keys.parquet")
    rows = pq.read_table(listed).to_pylist()
    own = PairwiseExchange(parties.exchange).own_keys(0, "holder-2")[0].sender
    other = next(row for row in rows if row["sender"] != own)
    changed = [row | {"mask": other["mask"]} if row["sender"] == own else row for row in rows]
    pq.write_table(pa.Table.from_pylist(changed, schema=pq.read_schema(listed)), listed)
    outcome = parties.upload(2)
    assert outcome.code == 5
    assert "the aggregator lists other keys than those that were sent" in outcome.err


def test_enrolling_makes_a_secret_for_its_owner_only_and_nothing_else_does(parties):
    secret = parties.folder / "secret-2"
    secret.unlink()
    outcome = parties.upload(2)
    assert (outcome.code, "masked.secret_uri must be a readable file" in outcome.err) == (2, True)
    outcome = lake.run_command(
        "party", "enroll", "--config", str(parties.folder / "job-2.yaml"), "--client", "holder-2"
    )
    assert outcome.code == 0, outcome.err
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.stat().st_size == 32
    assert parties.upload(2).code == 0
    for name in ("secret_uri", "state_uri"):
        for place in (f"{parties.exchange}/inside", parties.exchange):
            inside = parties.job | {"masked": parties.job["masked"] | {name: place}}
            (parties.folder / "job-2.yaml").write_text(yaml.safe_dump(inside))
            outcome = parties.upload(2)
            assert outcome.code == 2
            assert f"masked.{name} must be outside of --exchange" in outcome.err


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A round in which clients are split over files and unmasking adds noise, and the graph of every pipeline."""
    folder = tmp_path_factory.mktemp("watched")
    settings = LLOYD | {"dp_lloyd": LLOYD["dp_lloyd"] | {"steps": 1}}
    parties = Parties(folder, "client", **settings, masked={"noise_by": "both"})
    (folder / "lake-1").rename(folder / "grouped")
    (folder / "raw-1").rename(folder / "lake-1")
    parties.graphs = {}

    def watch(module):
        run = module.run_graph

        def watching(add, options, promise):
            root = beam.Pipeline(options=options)
            add(root)
            content = root.to_runner_api().SerializeToString()
            parties.graphs.setdefault(module.__name__, []).append(content)
            return run(add, options, promise)

        return watching

    with pytest.MonkeyPatch.context() as patch:
        for module in (pairwise_upload, unmask, aggregate):
            patch.setattr(module, "run_graph", watch(module))
        parties.summary = parties.play({})
    return parties


def test_split_clients_are_grouped_alike_in_every_leg_and_further_noise_is_added(watched):
    releases = releases_from_table(pq.read_table(f"{watched.summary['output']}/releases.parquet"))
    plans = plan_files(validated(watched.job)).rounds[0].plan.releases
    for release, plan in zip(releases, plans, strict=True):
        assert release.plan.noise_multiplier == pytest.approx(2.0**0.5 * plan.noise_multiplier)
    senders = PairwiseExchange(watched.exchange).read_sum(0)[0].senders
    assert senders == tuple(number.to_bytes(8, "big") for number in range(10))
    assert not list(pathlib.Path(watched.released).glob("*.clients"))


def test_no_graph_holds_a_secret_or_a_share(watched):
    shares = [each.share for each in watched.shares(0)]
    assert len(shares) == 10 * 9
    found = {name.rpartition(".")[2]: list(map(unpacked, graphs)) for name, graphs in watched.graphs.items()}
    assert {name: len(graphs) for name, graphs in found.items()} == {"pairwise_upload": 15, "unmask": 1, "aggregate": 1}
    for graph in (graph for graphs in found.values() for graph in graphs):
        assert not any(share in graph for share in shares)
        assert not any(spellings_in(graph, secret) for secret in (*SECRETS, lake.KEY))
    (adding,) = found["aggregate"]
    assert b"secret-" not in adding
    assert b"lake-" not in adding
    assert b"pairwise_legs" not in adding
