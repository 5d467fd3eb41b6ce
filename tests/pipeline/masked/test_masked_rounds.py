"""Rounds with masked aggregation: the sum of those present comes back bit for bit, and the aggregator sees no more."""

import collections
import dataclasses
import functools
import itertools
import json

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam.internal import pickler

from dapple_dp.pipelines.kmeans.plan.planned_fit import message_contract
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.choices import NoiseBy
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.transforms.core import noise
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.files.publish import PublishModel
from dapple_dp.transforms.masked import aggregator
from dapple_dp.transforms.masked import clients as client_messages
from dapple_dp.transforms.masked.aggregation import Masked
from dapple_dp.transforms.masked.clients import Masking
from dapple_dp.transforms.numerics.masked import noise_shares
from dapple_dp.transforms.numerics.masked import shared_masks as masking_numerics
from dapple_dp.transforms.on_beam.round import RunRounds
from dapple_dp.transforms.tables.read import ListShards
from tests.pipeline.privacy.test_secrets import Functions, spellings_in, unpacked
from tests.scenes import lake
from tests.scenes.graphs import add_fit
from tests.statistical.test_mask_uniformity import FRESH, looks_uniform

SECRET = bytes(range(51, 83))
N_ROWS, CLIENT_ROWS, GROUP_ROWS = 600, 10, 20
KINDS = ("record by shard", "record by client", "client tuned", "client paper")
LLOYD = {
    "best": {"init": "best", "steps": 2},
    "candidates": {"init": "candidates", "steps": 2},
    "packed": {"init": "sphere_packing", "steps": 3},
    "feddp_init": {"init": "feddp_init", "steps": 1},
    "medians": {"init": "best", "steps": 2},
}
LLOYD_KINDS = (
    *("record by shard dp_lloyd best", "record by client dp_lloyd packed"),
    *("record by shard dp_lloyd feddp_init", "client dp_lloyd packed"),
    *("client dp_lloyd best", "client dp_lloyd feddp_init", "client dp_lloyd candidates"),
    *("record by client dp_lloyd medians", "client dp_lloyd medians"),
)
REPLAY = ("--direct_runner_bundle_repeat=2",)


class Witness:
    """Sees what both roles see: every message before and after its mask, every sum before and after its noise."""

    def __init__(self):
        self.messages, self.draws, self.shares = [], [], []
        self._mask, self._draw = masking_numerics.RoundMasks.mask, noise.draw_release
        self._share = noise_shares.draw_share

    def mask(self, masks, senders, statistics):
        found = self._mask(masks, senders, statistics)
        self.messages += zip(senders, found.senders, found.tags, statistics, found.values, strict=True)
        return found

    def share(self, key, sender, plan, statistic, counted):
        found = self._share(key, sender, plan, statistic, counted)
        self.shares.append((plan.path, sender, counted, found))
        return found

    def draw(self, key, plan, exact_sum):
        releases = self._draw(key, plan, exact_sum)
        values = np.concatenate([each.values.ravel() for each in releases])
        self.draws.append((plan.path, exact_sum.copy(), values - exact_sum))
        return releases


class Hall:
    """One lake of 60 clients in 30 row groups, and runs of it under masks."""

    def __init__(self, folder):
        self.folder = folder
        self.points = lake.mixture(N_ROWS)
        clients = np.arange(N_ROWS) // CLIENT_ROWS
        self.path = lake.write_lake(folder / "lake", self.points, clients, n_files=3, row_group_size=GROUP_ROWS)
        self.server = lake.write_server(folder / "server.parquet")
        self.key_uri = lake.write_key(folder / "key")
        self.secret_uri = lake.write_key(folder / "secret", SECRET)
        self._runs = 0
        self._kept = {}

    def job(self, kind, **settings):
        changes = {"lloyd": {"steps": 1}, "key_uri": self.key_uri, "trust": "masked"}
        changes["masked"] = {"secret_uri": self.secret_uri}
        by, _, method = kind.partition(" dp_lloyd ")
        if by == "record by client":
            changes["data__client_id"] = "client_id"
        if by.startswith("client "):
            changes["privacy__allocation"] = by.split()[1]
        if method:
            changes |= lloyd_changes(method, N_ROWS if by.startswith("record") else N_ROWS // CLIENT_ROWS)
        return lake.planned(lake.job(self.path, self.server, kind.split()[0], **changes, **settings))

    def senders(self, kind):
        """Names of the senders, and the rows of each, in the order of the lake."""
        width = GROUP_ROWS if kind.startswith("record by shard") else CLIENT_ROWS
        names = []
        for file, group in itertools.product(range(3), range(N_ROWS // 3 // GROUP_ROWS)):
            place = () if kind.startswith("client") else (encode_label(f"part-{file:02d}.parquet", group),)
            owners = [b"integers%d" % (len(names) + each) for each in range(GROUP_ROWS // width)]
            names += [encode_label("", b"" if width == GROUP_ROWS else owner, *place) for owner in owners]
        return {name: slice(i * width, (i + 1) * width) for i, name in enumerate(names)}

    def present(self, kind, lost):
        """Rows of all senders but the lost ones."""
        rows = [self.points[rows] for name, rows in self.senders(kind).items() if name not in lost]
        return block_of(kind, np.concatenate(rows))

    def kept(self, kind, *flags, dropouts=False):
        """As `run`, once for all tests; returns the dropouts of each round as well."""
        if (kind, flags, dropouts) not in self._kept:
            lost = dropouts_of(list(self.senders(kind))) if dropouts else [[]]
            self._kept[kind, flags, dropouts] = (*self.run(kind, *flags, dropped=lost), lost)
        return self._kept[kind, flags, dropouts]

    def run(self, kind, *flags, dropped=(), noise_by=NoiseBy.AGGREGATOR, threshold=1, pairwise=None, **more):
        """Runs a job; returns it, the model, and the witness.

        `dropped` are the senders that drop out of the first round, of the second one and so on, over and over.
        """
        self._runs += 1
        out = self.folder / f"run-{self._runs}"
        out.mkdir()
        planned, witness = self.job(kind), Witness()
        masking = Masking(
            secret_uri=self.secret_uri,
            run="run",
            root=self.path,
            whole_clients=kind.startswith("client"),
            noise_by=noise_by,
            threshold=threshold,
            pairwise=pairwise,
            **more,
        )
        LOST[:] = dropped
        DELIVERED.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(masking_numerics.RoundMasks, "mask", lambda *given: witness.mask(*given))
            patch.setattr(noise, "draw_release", witness.draw)
            patch.setattr(noise_shares, "draw_share", witness.share)
            patch.setitem(WITNESS, 0, witness)
            lake.run_unchecked(
                functools.partial(build, planned=planned, masking=masking, key_uri=self.key_uri, out=str(out)),
                beam_options(flags),
            )
        tables = [pq.read_table(out / name) for name in lake.RELEASED_FILES]
        return planned, model_from_tables(*tables), witness


def lloyd_changes(method, n_public):
    """Returns what makes a job one of DP-Lloyd."""
    clipping = {} if method == "feddp_init" else {"clipping": {"client_rows": CLIENT_ROWS}}
    section = {"domain": [-2.0, 7.0]} | LLOYD[method]
    algorithm = "dp_medians" if method == "medians" else "dp_lloyd"
    return clipping | {"algorithm": algorithm, "dp_lloyd": section, "lloyd": {}, "data__public_rows": n_public}


def dropouts_of(senders):
    """Senders that drop out of a round: nobody, one of them, and 30 percent in the third."""
    order = np.random.default_rng(7).permutation(len(senders))
    return [[senders[place] for place in order[:count]] for count in (0, 1, round(0.3 * len(senders)))]


LOST, WITNESS, DELIVERED = [], {0: None}, collections.Counter()


def deliver(messages):
    """Loses the messages of the senders that drop out; with pairwise masks a number is all that names them."""
    names = {pseudonym: name for name, pseudonym, *_ in WITNESS[0].messages}
    kept = [index for index, each in enumerate(messages.senders) if _arrives(names.get(each, each))]
    taken = [tuple(field[index] for index in kept) for field in messages[:2]]
    return MaskedMessages(*taken, messages.values[kept])


def _arrives(sender):
    """A sender has one message in each round."""
    index = DELIVERED[sender]
    DELIVERED[sender] += 1
    return not LOST or sender not in LOST[index % len(LOST)]


def build(root, planned, masking, key_uri, out):
    contract = message_contract(planned)
    source = lake.staged(planned.source, out)
    shards = root | "List" >> ListShards(source=source, contract=contract)
    aggregation = Masked(contract=contract, key_uri=key_uri, masking=masking, deliver=deliver)
    state = root | "Public" >> beam.Create([planned.initial], reshuffle=False)
    run = RunRounds(rounds=planned.rounds, state=state, aggregation=aggregation)
    _ = shards | "Rounds" >> run | "Publish" >> PublishModel(folder=out)


@pytest.fixture(scope="module")
def hall(tmp_path_factory):
    return Hall(tmp_path_factory.mktemp("masked"))


def rounds_of(releases, planned):
    """Releases of each round, in order."""
    remaining = list(releases)
    return [[remaining.pop(0) for _ in each.plan.releases] for each in planned.rounds]


def block_of(kind, points):
    offsets = np.arange(0, len(points) + 1, CLIENT_ROWS) if kind.startswith("client") else None
    return ClientBlock(points, offsets)


@pytest.mark.parametrize("kind", [*KINDS, *LLOYD_KINDS])
def test_the_unmasked_sum_is_the_plain_sum_of_those_present(hall, kind):
    check_sums(hall, kind, *hall.kept(kind, dropouts=True))


def check_sums(hall, kind, planned, model, witness, lost):
    """Checks that the release, less its noise, is the plain sum of those present; the aggregator has seen another."""
    assert len(planned.rounds) >= len(lost) == 3
    state = planned.initial
    draws = {path: (total, drawn) for path, total, drawn in witness.draws}
    for index, releases in enumerate(rounds_of(model.releases, planned)):
        each = planned.rounds[index]
        plain = each.statistic(hall.present(kind, lost[index % 3]), state)
        masked_total, drawn = draws[each.plan.path]
        released = np.concatenate([release.values.ravel() for release in releases])
        np.testing.assert_array_equal(released - drawn, plain)
        assert not np.equal(masked_total, plain).any()
        assert np.count_nonzero(drawn) == drawn.size
        state = each.step(state, tuple(releases))
    np.testing.assert_array_equal(state.model().centers, model.centers)


PAIRWISE = PairwiseParams(corrupt=0.05, dropout=0.4)


@pytest.mark.parametrize(
    "kind",
    [
        "record by shard",
        "client tuned",
        "record by shard dp_lloyd best",
        "client dp_lloyd packed",
        "client dp_lloyd medians",
    ],
)
def test_pairwise_masks_leave_the_plain_sum_of_those_present(hall, kind):
    names = sorted(hall.senders(kind))
    lost = dropouts_of(names)
    dropped = [[names.index(name).to_bytes(8, "big") for name in each] for each in lost]
    check_sums(hall, kind, *hall.run(kind, dropped=dropped, pairwise=PAIRWISE), lost)


def test_pairwise_masks_refuse_more_dropouts_than_they_can_recover(hall):
    senders = [number.to_bytes(8, "big") for number in range(16)]
    with pytest.raises(ProtocolError, match="neighbors of every client must hand out shares"):
        hall.run("record by shard", dropped=[senders], pairwise=PAIRWISE)


@pytest.mark.parametrize("kind", [*KINDS, "client dp_lloyd best"])
def test_no_mask_is_used_for_two_messages_and_a_retry_is_the_same_message(hall, kind):
    planned, _, witness, _ = hall.kept(kind, *REPLAY)
    attempts = {}
    for name, pseudonym, tag, statistic, values in witness.messages:
        attempts.setdefault((name, pseudonym, tag), set()).add((statistic.tobytes(), values.tobytes()))
    assert len(witness.messages) == 3 * len(attempts)
    assert all(len(found) == 1 for found in attempts.values())
    assert len(attempts) == len(planned.rounds) * len(hall.senders(kind))
    masks = [np.frombuffer(m, dtype="<i8") - np.frombuffer(s, dtype="<i8") for ((s, m),) in attempts.values()]
    assert len({mask[:4].tobytes() for mask in masks}) == len(masks)
    words = np.concatenate(masks)
    assert len(np.unique(words)) == len(words)


@pytest.mark.parametrize("kind", [*KINDS, "client dp_lloyd best"])
def test_what_the_aggregator_sees_is_uniform(hall, kind):
    _, _, witness, _ = hall.kept(kind, dropouts=True)
    seen = [values for *_, values in witness.messages] + [total for _, total, _ in witness.draws]
    assert looks_uniform(np.concatenate(seen), FRESH)
    assert not looks_uniform(np.concatenate([statistic for *_, statistic, _ in witness.messages]))


def test_a_second_run_of_the_same_job_is_the_same_release(hall):
    first, second = (hall.kept("client tuned", *flags)[1] for flags in ((), REPLAY))
    for left, right in zip(first.releases, second.releases, strict=True):
        np.testing.assert_array_equal(left.values, right.values)


def test_noise_of_both_roles(hall):
    """Two full noises: the clients' role adds its own to what the aggregator has noised, and says so."""
    planned, model, witness = hall.run("record by shard", noise_by=NoiseBy.BOTH)
    assert [path.endswith("/further") for path, *_ in witness.draws] == [False, True] * len(planned.rounds)
    block, state = block_of("record", hall.points), planned.initial
    for index, releases in enumerate(rounds_of(model.releases, planned)):
        each = planned.rounds[index]
        released = np.concatenate([release.values.ravel() for release in releases])
        (_, _, first), (_, seen, second) = witness.draws[2 * index : 2 * index + 2]
        plain = each.statistic(block, state)
        np.testing.assert_array_equal(released - first - second, plain)
        np.testing.assert_array_equal(seen, plain + first)
        assert not np.equal(first, second).any()
        for release, plan in zip(releases, each.plan.releases, strict=True):
            assert release.plan.noise_multiplier == pytest.approx(plan.noise_multiplier * 2**0.5)
        state = each.step(state, tuple(releases))


def test_too_few_messages_stop_the_round(hall):
    names = list(hall.senders("record by shard"))
    with pytest.raises(ProtocolError, match="fewer than 30 messages"):
        hall.run("record by shard", dropped=[names[:1]], threshold=30)
    assert hall.run("record by shard", threshold=30)[1].n_clusters == 3


def test_two_messages_of_one_sender_stop_the_round():
    function = aggregator.SumMessagesFn(2)
    batch = MaskedMessages((b"a", b"b"), (b"1", b"2"), np.ones((2, 2), dtype=np.int64))
    total = functools.reduce(function.add_input, [batch, batch], function.create_accumulator())
    merged = function.merge_accumulators([total, function.create_accumulator()])
    assert function.extract_output(merged).senders == (b"a", b"a", b"b", b"b")
    with pytest.raises(ProtocolError, match="two messages of one sender"):
        aggregator._checked(function.extract_output(merged), 1)


@pytest.fixture(scope="module")
def graph(hall):
    """A built masked job, and its functions."""
    pipeline = beam.Pipeline(options=beam_options([]))
    masking, job = Masking(secret_uri=hall.secret_uri, run="run"), hall.job("client tuned")
    job = dataclasses.replace(job, source=lake.staged(job.source, hall.folder / "listings"))
    job = dataclasses.replace(job, contract=message_contract(job))
    masking = dataclasses.replace(masking, root=job.source.path)
    aggregation = Masked(contract=job.contract, key_uri=hall.key_uri, masking=masking)
    add_fit(pipeline, job, aggregation, str(hall.folder / "out"))
    return pipeline, Functions(pipeline).found


def secrets_in(content):
    return {name for secret in (SECRET, lake.KEY) for name in spellings_in(content, secret)}


def test_the_graph_holds_no_secret(graph):
    content = graph[0].to_runner_api().SerializeToString()
    assert secrets_in(content) == set()


def test_the_aggregators_functions_hold_no_secret_and_no_way_to_it(hall, graph):
    own = {label: function for label, function in graph[1].items() if "/Aggregate/" in label}
    assert len(own) >= 4 * 2
    for label, function in own.items():
        if isinstance(function, beam.DoFn):
            function.setup()
        packed = unpacked(pickler.dumps(function))
        assert hall.secret_uri.encode() not in packed, label
        assert b"client_messages" not in packed, label
        assert b"masking" not in packed, label
        for value in vars(function).values():
            assert value != SECRET, label
            assert not isinstance(value, Masking), label
        if isinstance(function, beam.DoFn):
            function.teardown()


def test_the_clients_functions_forget_the_secret(graph):
    own = [function for function in graph[1].values() if isinstance(function, client_messages.SecretFn)]
    assert len(own) == 4 * 2
    for function in own:
        function.setup()
        assert function._key == SECRET
        assert pickler.loads(pickler.dumps(function))._key is None
        assert secrets_in(pickler.dumps(function)) == set()
        function.teardown()
        assert function._key is None


def test_a_run_without_given_secret_leaves_none(hall, tmp_path):
    settings = lake.job(hall.path, hall.server, "client", trust="masked")
    outcome = lake.run_job(settings, tmp_path)
    assert outcome.code == 0, outcome.err
    assert not list(tmp_path.rglob("*.secret"))
    assert not list(tmp_path.rglob("*.key"))


def test_the_statement_says_who_is_trusted(hall, tmp_path):
    settings = lake.job(hall.path, hall.server, "client", trust="masked", masked={"noise_by": "both"})
    result = lake.run_fit(settings, tmp_path / "run")
    found = result.privacy.to_json()
    assert found["trust"] == "masked"
    assert found["masked"]["roles"] == "simulated in one job"
    assert found["masked"]["noise_by"] == "both"
    assert found["masked"]["message_bytes"]["feddp_kmeans/centers"] == 8 * 3 * 5 + 28


@pytest.mark.parametrize("scheme", ["shared_secret", "pairwise"])
def test_dp_lloyd_after_feddp_init_runs_masked(hall, tmp_path, scheme):
    masked = {"scheme": scheme, "threshold": 2}
    changes = lloyd_changes("feddp_init", N_ROWS // CLIENT_ROWS)
    settings = lake.job(hall.path, hall.server, "client", trust="masked", masked=masked, **changes)
    outcome = lake.run_job(settings, tmp_path)
    assert outcome.code == 0, outcome.err
    privacy = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert privacy["trust"] == "masked"
    assert privacy["masked"]["message_bytes"]["dp_lloyd/lloyd_00"] == 8 * 3 * 5 + 28
