"""Signed files of masked aggregation: a party without its key can put no file in its place, nor move one."""

import dataclasses
import json
import pathlib
import shutil
import stat

import numpy as np
import pytest
import yaml

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR, PairwiseParams, party_line, validated_aggregate
from dapple_dp.schemas.masked.exchange import ExchangePlan, MaskedMessages, MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import LETTER_BYTES, Leg, Letter, SenderKeys
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.sealing import Sealing
from dapple_dp.transforms.masked.signing import Parties, Signed
from dapple_dp.transforms.masked.spoken_words import spoken_words
from dapple_dp.transforms.numerics.masked import public_keys
from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_key
from tests.pipeline.masked.test_masked_jobs import Parties as SharedJobs
from tests.pipeline.masked.test_pairwise_jobs import Parties as PairwiseJobs
from tests.scenes import lake
from tests.scenes.parties import with_identities

CLIENTS = ("north", "east", "south")
EVERYBODY = (*CLIENTS, AGGREGATOR, COLLECTOR)
PRIVATE = {name: bytes(range(start, start + 32)) for start, name in enumerate(EVERYBODY, 7)}
PUBLIC = {name: public_keys.public_part(private).hex() for name, private in PRIVATE.items()}
SPEC = ReleaseSpec(
    name="weights",
    shape=(2, 3),
    mechanism=Mechanism.DISCRETE_GAUSSIAN,
    sensitivity=1 << 20,
    share=0.5,
    geometry=Geometry.VECTOR,
)
ROUNDS = tuple(
    RoundPlan(path=f"feddp_kmeans/{name}", releases=(ReleasePlan(spec=SPEC, noise_multiplier=3.25),))
    for name in ("weights", "lloyd")
)
PLAN = ExchangePlan(
    run="run", nonce=bytes(range(32)), settings="a" * 64, rounds=ROUNDS, pairwise=PairwiseParams(0.0, 0.0)
)
MESSAGES = "00_weights/messages/north.sealed"
READ_AT = {"north": 8, "east": 9, "south": 10}
"""What distinguishes keys of one client from those of another."""


class Run:
    """A run in a folder, as each party sees it."""

    def __init__(self, folder, plan=PLAN):
        self.folder, self.exchange = folder, folder / "exchange"
        folder.mkdir(exist_ok=True)
        for name, private in PRIVATE.items():
            if not (folder / name).exists():
                lake.write_key(folder / name, private)
        self.of(COLLECTOR).open(plan)
        self.of(AGGREGATOR).publish_key(public_key(self.opens(plan)))
        for index in range(2):
            self.of(COLLECTOR).open_round(index, bytes([index]) * 32)

    def of(self, name, own=None):
        """The exchange, as the party sees it that has a key; `own` is the party that it claims to be."""
        parties = Parties(keys=PUBLIC, own=own or name, identity_uri=str(self.folder / name))
        return PairwiseExchange(str(self.exchange), parties)

    @staticmethod
    def opens(plan=PLAN):
        return private_key(bytes(range(90, 122)), plan.nonce, "messages")

    def send(self, name="north", index=0, own=None, plan=PLAN):
        """One message; its file."""
        message = MaskedMessages((b"12345678",), (b"tag",), np.full((1, 6), index, np.int64))
        sealing = Sealing(receiver=public_key(self.opens(plan)), secret_uri=str(self.folder / name))
        self.of(name, own).send(index, own or name, message, sealing)
        return pathlib.Path(self.of(AGGREGATOR).message_files(index)[-1])

    def read(self, index=0, name="north"):
        path = str(self.exchange / f"0{index}_{('weights', 'lloyd')[index]}" / "messages" / f"{name}.sealed")
        return self.of(AGGREGATOR).read_messages(index, path, self.opens())

    def send_keys(self):
        for name, start in READ_AT.items():
            self.of(name).send_rows(0, Leg.KEYS, name, [keys_of(start)])


def keys_of(start):
    return SenderKeys(bytes([start] * 8), bytes([start] * 32), bytes(range(start, start + 32)))


def masked_sum(index=0):
    values = np.ones((2, 3), np.int64)
    release = Release(path=f"{ROUNDS[index].path}/weights", plan=ROUNDS[index].releases[0], values=values)
    return MaskedReleases((release,), (b"12345678",), (b"tag",))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def put(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def test_every_file_is_read_by_everybody(run):
    run.send()
    run.send_keys()
    run.of(AGGREGATOR).close_keys(0, 2)
    run.of(AGGREGATOR).close_round(0, masked_sum())
    assert run.read().senders == (b"12345678",)
    for name in EVERYBODY:
        exchange = run.of(name)
        assert exchange.plan() == PLAN
        assert exchange.broadcast(1) == bytes([1]) * 32
        assert exchange.aggregator_key() == public_key(run.opens())
        assert exchange.keys(0) == [keys_of(start) for start in READ_AT.values()]
        assert exchange.read_sum(0)[0].senders == (b"12345678",)


def test_a_retry_writes_the_same_bytes(run):
    content = run.send().read_bytes()
    assert run.send().read_bytes() == content


@pytest.mark.parametrize("attack", ["another party", "another round", "another run", "another kind", "another plan"])
def test_a_file_that_is_copied_is_refused_by_the_name_of_the_party(run, tmp_path, attack):
    index, name, target = 0, "north", run.exchange / MESSAGES
    if attack == "another party":
        name, target = "east", run.exchange / MESSAGES.replace("north", "east")
        put(run.send(), target)
    elif attack == "another round":
        index, target = 1, run.exchange / MESSAGES.replace("00_weights", "01_lloyd")
        put(run.send(), target)
    elif attack == "another kind":
        run.of("north").send_rows(0, Leg.KEYS, "north", [keys_of(8)])
        put(run.exchange / "00_weights" / "keys" / "north.parquet", target)
    else:
        changed = {"nonce": bytes(32)} if attack == "another run" else {"run": "other"}
        plan = dataclasses.replace(PLAN, **changed)
        put(Run(tmp_path / "other", plan).send(plan=plan), target)
    with pytest.raises(ProtocolError, match=rf"{name}\.sealed must be signed by {name} as messages of this run"):
        run.read(index, name)


def test_a_message_for_another_broadcast_is_refused(run):
    run.send()
    path = run.exchange / "00_weights" / "broadcast.json"
    path.unlink()
    run.of(COLLECTOR).open_round(0, bytes([9]) * 32)
    with pytest.raises(ProtocolError, match="must be signed by north"):
        run.read()


@pytest.mark.parametrize("place", [0, 40, -65, -64, -1])
def test_a_changed_byte_is_refused(run, place):
    path = run.send()
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ProtocolError, match="must be signed by north"):
        run.read()


@pytest.mark.parametrize("size", [0, 1, 63, 64, -64, -1])
def test_a_signature_that_is_stripped_or_cut_is_refused(run, size):
    path = run.send()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ProtocolError, match="must be signed by north"):
        run.read()


def test_bytes_behind_a_signature_are_refused(run):
    path = run.send()
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ProtocolError, match="must be signed by north"):
        run.read()


def test_the_key_of_another_party_signs_for_itself_only(run):
    run.send("east", own="north")
    with pytest.raises(ProtocolError, match="must be signed by north"):
        run.read()


@pytest.mark.parametrize("name", ["nobody", AGGREGATOR, COLLECTOR])
def test_a_file_of_nobody_or_of_an_office_is_refused(run, name):
    """The aggregator would else be among the senders, as many times as it likes."""
    put(run.send(), run.exchange / MESSAGES.replace("north", name))
    with pytest.raises(ProtocolError, match=f"is from {name}, which is no client"):
        run.read(name=name)


FILES = {
    "plan.json": (COLLECTOR, lambda exchange: exchange.open(PLAN)),
    "aggregator.json": (AGGREGATOR, lambda exchange: exchange.publish_key(public_key(bytes(range(32))))),
    "00_weights/broadcast.json": (COLLECTOR, lambda exchange: exchange.open_round(0, bytes(32))),
    "00_weights/sum.parquet": (AGGREGATOR, lambda exchange: exchange.close_round(0, masked_sum())),
    "00_weights/keys.parquet": (AGGREGATOR, lambda exchange: exchange.close_keys(0, 2)),
}
READERS = {
    "plan.json": lambda exchange: exchange.plan(),
    "aggregator.json": lambda exchange: exchange.aggregator_key(),
    "00_weights/broadcast.json": lambda exchange: exchange.broadcast(0),
    "00_weights/sum.parquet": lambda exchange: exchange.read_sum(0),
    "00_weights/keys.parquet": lambda exchange: exchange.keys(0),
}


@pytest.mark.parametrize("file", FILES)
def test_a_client_can_write_no_file_of_an_office(run, file):
    """Neither under its own name, nor under that of the office, nor without a signature."""
    (owner, write), path = FILES[file], run.exchange / file
    run.send_keys()
    path.unlink(missing_ok=True)
    if file != "plan.json":
        with pytest.raises(
            ProtocolError, match=f"must be written by {owner}, and this job has the key of north; let {owner} run"
        ):
            write(run.of("north"))
        assert not path.exists()
    write(run.of("north", own=owner))
    with pytest.raises(ProtocolError, match=f"must be signed by {owner}"):
        READERS[file](run.of("south"))
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(ProtocolError, match=f"must be signed by {owner}"):
        READERS[file](run.of("south"))


def test_a_party_may_find_a_file_that_it_may_not_write(run):
    """A client that unmasks for itself finds the next round open, or waits until it is."""
    path = run.exchange / "00_weights" / "broadcast.json"
    content = path.read_bytes()
    run.of("north").open_round(0, bytes(32))
    assert path.read_bytes() == content
    with pytest.raises(ProtocolError, match=f"must be written by {COLLECTOR}"):
        run.of("north").open_round(0, bytes([5]) * 32)


def test_the_aggregator_lists_no_sender_that_no_client_has_signed(run):
    """It would else be the neighbor of everybody, and learn all masks but the own ones."""
    run.send_keys()
    aggregator = run.of(AGGREGATOR)
    aggregator._close(0, Leg.KEYS, [*map(keys_of, READ_AT.values()), keys_of(99)], SenderKeys)
    with pytest.raises(ProtocolError, match="from aggregator must list what clients have signed"):
        run.of("north").keys(0)


def test_the_aggregator_lists_no_letter_that_no_client_has_signed(run):
    run.of("north").send_rows(0, Leg.LETTERS, "north", [Letter(0, 1, bytes(LETTER_BYTES))])
    run.of(AGGREGATOR)._close(0, Leg.LETTERS, [Letter(0, 1, b"x" * LETTER_BYTES)], Letter)
    with pytest.raises(ProtocolError, match="from aggregator must list what clients have signed"):
        run.of("north").letters(0)


def test_a_party_that_is_missing_stops_nobody(run):
    """The others are listed without it."""
    run.send_keys()
    (run.exchange / "00_weights" / "keys" / "east.parquet").unlink()
    lone = PairwiseExchange(str(run.exchange), run.of(AGGREGATOR).parties)
    with pytest.raises(ProtocolError, match="fewer than 3 clients have sent theirs"):
        lone.close_keys(0, 3)
    run.send()
    assert run.read().senders


def test_without_parties_files_are_as_they_were(tmp_path):
    exchange = Exchange(str(tmp_path))
    exchange.open(PLAN)
    assert (tmp_path / "plan.json").read_bytes() == PLAN.to_json().encode()
    exchange.open_round(0, bytes(32))
    text = (tmp_path / "00_weights" / "broadcast.json").read_text()
    assert text == f'{{"format": 1, "broadcast": "{"00" * 32}", "round": "feddp_kmeans/weights"}}'


def test_a_job_without_parties_reads_no_signed_run_and_one_with_parties_no_unsigned(run, tmp_path):
    with pytest.raises(ProtocolError, match=r"plan\.json must be what `dapple masked unmask` wrote"):
        Exchange(str(run.exchange)).plan()
    (run.exchange / "plan.json").write_bytes(PLAN.to_json().encode())
    with pytest.raises(ProtocolError, match=f"must be signed by {COLLECTOR} as plan"):
        run.of("north").plan()


def test_a_signature_is_bound_to_each_of_its_parts():
    one = Signed(party="a", kind="b", nonce=b"c", plan=b"d", round="e", broadcast=b"f")
    others = [
        one._replace(**{name: b"x" if isinstance(value, bytes) else "x"}) for name, value in one._asdict().items()
    ]
    moved = one._replace(party="ab", kind="")
    assert len({each.statement(b"content") for each in (one, *others, moved)} | {one.statement(b"")}) == 9


# --- keys


def forged(public, trials=256):
    """Tries to sign one of some texts without the private key: R is the neutral point, S is zero."""
    return any(public_keys.is_signed(public, bytes([each]), b"\1" + bytes(63)) for each in range(trials))


@pytest.mark.parametrize("sign_bit", [0, 0x80])
@pytest.mark.parametrize("point", sorted(public_keys._LOW_ORDER), ids=lambda point: point.hex()[:6])
def test_keys_for_which_anybody_can_sign_are_refused(tmp_path, point, sign_bit):
    key = point[:-1] + bytes([point[-1] | sign_bit])
    assert sign_bit or forged(key)
    assert not public_keys.only_owner_signs(key)
    with pytest.raises(ConfigError, match="with which only east can sign, got a point of low order"):
        Parties.of(PUBLIC | {"east": key.hex()}, lake.write_key(tmp_path / "key", PRIVATE["north"]))


def test_usual_keys_are_taken():
    for public in map(bytes.fromhex, PUBLIC.values()):
        assert public_keys.only_owner_signs(public)
        assert not forged(public, 8)


def test_a_job_must_have_the_key_of_its_party(tmp_path):
    place = lake.write_key(tmp_path / "key", PRIVATE["north"])
    assert Parties.of(PUBLIC, place).own == Parties.of(PUBLIC, place, "north").own == "north"
    with pytest.raises(ConfigError, match="must hold the key that parties give for east, got that of north"):
        Parties.of(PUBLIC, place, "east")
    stranger = lake.write_key(tmp_path / "stranger", bytes(range(100, 132)))
    with pytest.raises(ConfigError, match="must hold the key that parties give for one of them, got that of nobody"):
        Parties.of(PUBLIC, stranger)
    pathlib.Path(place).chmod(0o644)
    with pytest.raises(ConfigError, match="identity_uri must be a file of mode 0600"):
        Parties.of(PUBLIC, place)


WRONG = [
    ({"parties": {name: PUBLIC[name] for name in CLIENTS}}, "parties must be the keys of aggregator, collector and"),
    ({"parties": {name: PUBLIC[name] for name in (AGGREGATOR, COLLECTOR)}}, "got none for a client"),
    ({"parties": PUBLIC | {"west": PUBLIC["north"]}}, "the same key for north and west"),
    (
        {"parties": PUBLIC | {"west": "ab"}},
        "parties.west must be the whole line that `dapple masked party new` printed, got 2 letters",
    ),
    ({"parties": PUBLIC | {"west": PUBLIC["north"].upper()}}, "parties.west must be the whole line"),
    ({"parties": PUBLIC | {"../west": "ab" * 32}}, "parties must be named with letters, digits"),
    ({"parties": None}, "parties and identity_uri must be given together, got only one of them"),
    ({"identity_uri": None}, "parties and identity_uri must be given together, got only one of them"),
    ({"identity_uri": "k"}, "identity_uri must differ from key_uri"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_parties_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(ConfigError) as caught:
        validated_aggregate({"key_uri": "k", "parties": PUBLIC, "identity_uri": "own"} | changes)
    assert said in str(caught.value)


def test_a_new_party_has_a_file_of_its_own(tmp_path):
    place = tmp_path / "key"
    outcome = lake.run_command("party", "new", "north", "--output", str(place))
    assert (outcome.code, stat.S_IMODE(place.stat().st_mode)) == (0, 0o600)
    key = public_keys.public_part(place.read_bytes())
    assert f"  {party_line('north', key)}\n" in outcome.out
    assert outcome.out.endswith(f"six words of north:\n\n  {spoken_words('north', key.hex())}\n")
    again = lake.run_command("party", "new", "north", "--output", str(place))
    assert (again.code, again.out) == (2, "")
    assert "--output must be a new writable file" in again.err
    for words in ((), ("new",), ("old", "--output", "x"), ("new", "a", "--output", "x", "y")):
        refused = lake.run_command("party", *words)
        assert (refused.code, refused.out) == (2, "")
        assert "the command line must be `dapple masked party" in refused.err
        assert "`dapple masked party new NAME [--output KEY]`" in refused.err


# --- jobs


def test_jobs_sign_what_they_write_and_refuse_what_is_not_signed(tmp_path):
    """The run has a shared secret: opened by the collector alone, one message forged, one client not listed."""
    jobs = with_identities(SharedJobs(tmp_path), ["client-0", "client-1", "client-2"])
    outcome = jobs.unmask(client=1)
    assert (outcome.code, f"must be written by {COLLECTOR}, and this job has the key of client-1" in outcome.err) == (
        5,
        True,
    )
    assert jobs.unmask(client=COLLECTOR).code == 0
    for client in range(2):
        outcome = jobs.upload(client)
        assert outcome.code == 0, outcome.err
    for name in ("client-1", "client-9", AGGREGATOR):
        outcome = jobs.upload(0, name=name)
        assert (outcome.code, name in outcome.err) == (2, True)
    sent = pathlib.Path(jobs.exchange, "00_outer_product", "messages", "client-1.sealed")
    content = sent.read_bytes()
    sent.write_bytes((sent.parent / "client-0.sealed").read_bytes())
    outcome = jobs.aggregate()
    assert (outcome.code, "must be signed by client-1 as messages" in outcome.err) == (5, True)
    sent.write_bytes(content)
    (sent.parent / "outsider.sealed").write_bytes(content)
    masked = yaml.safe_load((tmp_path / "client-2.yaml").read_text())["masked"]
    listed = Exchange(jobs.exchange, Parties.of(masked["parties"], masked["identity_uri"], "client-2"))
    listed._write(str(sent.parent / "client-2.sealed"), b"garbage", "client-2", "messages", 0)
    outcome = jobs.aggregate()
    assert outcome.code == 0, outcome.err
    left_out = [f"00_outer_product/messages/{name}.sealed" for name in ("client-2", "outsider")]
    assert json.loads(outcome.out)["left_out"] == left_out
    outcome = jobs.unmask(client=COLLECTOR)
    assert outcome.code == 0, outcome.err
    assert pathlib.Path(jobs.exchange, "01_lloyd_00").exists() or pathlib.Path(jobs.released, "00.parquet").exists()
    outcome = jobs.unmask(client=2, released=str(tmp_path / "own"))
    assert outcome.code == 0, outcome.err


def test_fit_refuses_parties(tmp_path):
    jobs = with_identities(SharedJobs(tmp_path), ["client-0"])
    outcome = lake.run_command("fit", "--config", str(tmp_path / "client-0.yaml"), "--output", str(tmp_path / "out"))
    assert (outcome.code, "masked.parties must be left out for fit" in outcome.err) == (2, True)
    job = yaml.safe_load((tmp_path / "client-0.yaml").read_text())
    job["masked"] = {name: job["masked"][name] for name in ("secret_uri", "state_uri")}
    (tmp_path / "fit.yaml").write_text(yaml.safe_dump(job))
    outcome = lake.run_command("fit", "--config", str(tmp_path / "fit.yaml"), "--output", str(tmp_path / "out"))
    assert (outcome.code, "masked.state_uri must be left out for fit" in outcome.err) == (2, True)
    assert jobs.unmask().code == 5


@pytest.mark.slow
def test_a_round_with_pairwise_masks_is_signed_in_every_leg(tmp_path):
    jobs = with_identities(PairwiseJobs(tmp_path), [f"holder-{index}" for index in range(3)])
    assert jobs.unmask(client=COLLECTOR).code == 0
    for leg in Leg:
        for holder in range(3):
            outcome = jobs.upload(holder)
            assert outcome.code == 0, (leg, outcome.err)
        if leg is not Leg.SHARES:
            outcome = jobs.aggregate()
            assert outcome.code == 0, (leg, outcome.err)
    shares = sorted(pathlib.Path(jobs.released, "00_shares").glob("*.sealed"))
    shares[1].write_bytes(shares[0].read_bytes())
    (shares[1].parent / "outsider.sealed").write_bytes(b"junk")
    outcome = jobs.unmask(client=COLLECTOR)
    assert outcome.code == 0, outcome.err
    assert "must be signed by holder-1 as shares" in outcome.err
    assert "is from outsider, which is no client in parties" in outcome.err
    assert pathlib.Path(jobs.released, "00.parquet").exists()
