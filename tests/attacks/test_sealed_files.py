"""Files for one party alone are sealed to its key: a file that is open on a store reveals nothing to anyone else.

With a shared secret every client can unmask every message it can read; messages once were there for all to read.
"""

import json
import pathlib
import secrets

import numpy as np
import pytest
import yaml

from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.masked.exchange_files import MESSAGES, Exchange
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.numerics.masked import public_keys
from tests.pipeline.masked.test_masked_jobs import SECRET, Parties
from tests.scenes import lake
from tests.scenes.parties import opened
from tests.statistical.test_mask_uniformity import looks_uniform

pytestmark = pytest.mark.slow

OWN, OTHER = bytes(range(32)), bytes(range(32, 64))
LABEL = b"label"


def test_a_sealed_file_opens_for_its_receiver_alone():
    text = secrets.token_bytes(1000)
    raw = public_keys.seal(text, public_keys.public_key(OWN), OTHER, LABEL)
    assert public_keys.unseal(raw, OWN, LABEL) == text
    assert public_keys.unseal(raw, OTHER, LABEL) is None
    assert public_keys.unseal(raw, OWN, b"another label") is None
    assert len(raw) == len(text) + 48


@pytest.mark.parametrize("place", [0, 31, 32, 100, -17, -1])
def test_a_changed_byte_is_noticed(place):
    raw = bytearray(public_keys.seal(bytes(200), public_keys.public_key(OWN), OTHER, LABEL))
    raw[place] ^= 1
    assert public_keys.unseal(bytes(raw), OWN, LABEL) is None


@pytest.mark.parametrize("raw", [b"", b"x", bytes(31), bytes(32), bytes(48), bytes(500), b"PAR1" * 100])
def test_garbage_opens_for_nobody(raw):
    assert public_keys.unseal(raw, OWN, LABEL) is None


def test_a_retry_is_the_same_and_another_message_has_another_key():
    public = public_keys.public_key(OWN)
    one = public_keys.seal(bytes(100), public, OTHER, LABEL)
    assert public_keys.seal(bytes(100), public, OTHER, LABEL) == one
    changed = [
        public_keys.seal(bytes(99) + b"1", public, OTHER, LABEL),
        public_keys.seal(bytes(100), public, OTHER, b"other"),
        public_keys.seal(bytes(100), public, OWN, LABEL),
        public_keys.seal(bytes(100), public_keys.public_key(OTHER), OTHER, LABEL),
    ]
    keys = {raw[:32] for raw in (one, *changed)}
    assert len(keys) == 5


def test_sealed_bytes_look_uniform():
    raw = [
        public_keys.seal(bytes(8000), public_keys.public_key(OWN), secrets.token_bytes(32), LABEL)[32:-16]
        for _ in range(10)
    ]
    assert looks_uniform(np.frombuffer(b"".join(raw), dtype=np.int64))


def test_keys_of_a_party_differ_by_run_and_purpose():
    keys = {public_keys.private_key(s, n, p) for s in (OWN, OTHER) for n in (b"one", b"two") for p in ("a", "b")}
    assert len(keys) == 8


@pytest.fixture
def parties(tmp_path):
    return opened(Parties(tmp_path))


def test_the_secret_of_the_clients_opens_no_message(parties):
    """Nor do the sender's own key, the aggregator's key itself, or that of another run."""
    assert parties.upload(0).code == 0
    exchange = Exchange(parties.exchange)
    (path,) = map(pathlib.Path, exchange.message_files(0))
    plan = exchange.plan()
    label = encode_label(plan.nonce, plan.rounds[0].path, path.name)
    state = PartyState.of(str(parties.folder / "state"), str(parties.folder / "secret"), "client-0")
    own = pathlib.Path(state.seal_uri).read_bytes()
    assert public_keys.unseal(path.read_bytes(), public_keys.private_key(lake.KEY, plan.nonce, MESSAGES), label)
    for secret in (SECRET, own, lake.KEY):
        for key in (
            secret,
            public_keys.private_key(secret, plan.nonce, "shares"),
            public_keys.private_key(secret, b"", MESSAGES),
        ):
            assert public_keys.unseal(path.read_bytes(), key, label) is None
    assert public_keys.unseal(path.read_bytes(), public_keys.private_key(SECRET, plan.nonce, MESSAGES), label) is None
    assert b"PAR1" not in path.read_bytes()


def test_nothing_is_sent_before_the_aggregator_has_said_its_key(parties):
    pathlib.Path(parties.exchange, "aggregator.json").unlink()
    outcome = parties.upload(0)
    assert (outcome.code, "run `dapple masked aggregate` first" in outcome.err) == (5, True), outcome.err
    assert not list(pathlib.Path(parties.exchange).rglob("messages/*"))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"key": 5}', '{"key": "zz"}', '{"key": ""}'])
def test_a_malformed_key_is_refused(parties, content):
    pathlib.Path(parties.exchange, "aggregator.json").write_text(content)
    outcome = parties.upload(0)
    assert (outcome.code, "aggregator.json must hold a public key" in outcome.err) == (5, True), outcome.err


@pytest.mark.parametrize("point", [0, 1])
def test_a_key_of_low_order_is_refused(parties, point):
    text = json.dumps({"key": point.to_bytes(32, "little").hex()})
    pathlib.Path(parties.exchange, "aggregator.json").write_text(text)
    assert parties.upload(0).code == 5


def test_a_key_that_changes_during_a_run_is_refused(parties):
    assert parties.upload(0).code == 0
    text = json.dumps({"format": 1, "key": public_keys.public_key(OTHER).hex()})
    pathlib.Path(parties.exchange, "aggregator.json").write_text(text)
    (sent,) = pathlib.Path(parties.exchange).rglob("messages/*")
    raw = sent.read_bytes()
    sent.unlink()
    assert parties.upload(0).code == 0
    assert sent.read_bytes() == raw
    for client in range(2):
        assert parties.upload(client).code == 0
    state = PartyState.of(str(parties.folder / "state"), str(parties.folder / "secret"), "client-0")
    for path in pathlib.Path(state.folder).rglob("*.sent"):
        path.unlink()
    outcome = parties.upload(0)
    assert (outcome.code, "a second aggregator's key has arrived" in outcome.err) == (5, True), outcome.err
    outcome = parties.aggregate()
    assert (outcome.code, "must be written once" in outcome.err) == (5, True), outcome.err


def test_shares_are_for_the_client_that_opened_the_run(tmp_path):
    from tests.pipeline.masked import test_pairwise_jobs as pairwise

    parties = pairwise.Parties(tmp_path, **pairwise.LLOYD)
    assert parties.unmask().code == 0
    for leg in range(4):
        parties.leg(close=leg < 3)
    files = list(pathlib.Path(parties.released, "00_shares").iterdir())
    assert len(files) == 3
    plan = Exchange(parties.exchange).plan()
    for file in files:
        label = encode_label(plan.rounds[0].path, file.name)
        opened = [
            public_keys.unseal(file.read_bytes(), public_keys.private_key(s, plan.nonce, "shares"), label)
            for s in (*pairwise.SECRETS, lake.KEY)
        ]
        assert [text is None for text in opened] == [False, True, True, True]
    outcome = parties.unmask(1)
    assert (outcome.code, "under the secret of the client that opened the run" in outcome.err) == (5, True)
    job = yaml.safe_load((tmp_path / "job-0.yaml").read_text())
    assert job["masked"]["secret_uri"].endswith("secret-0")
    assert parties.unmask().code == 0
