"""Keys of noise shares: nothing that clients hand out for each other yields one, and no other party's secret does."""

import os

import numpy as np
import pytest

from dapple_dp.schemas.core.plan import Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.numerics.masked import pairwise_masks
from dapple_dp.transforms.numerics.masked.noise_shares import draw_share
from dapple_dp.transforms.numerics.masked.pairwise_masks import Neighbor, PairwiseClient, SharedRound
from dapple_dp.transforms.privacy import key_files
from tests.scenes import lake
from tests.scenes.derived_keys import derived_key

N_CLIENTS, THRESHOLD, CONTEXT = 5, 3, b"round"
SPEC = ReleaseSpec(name="sums", shape=(32,), mechanism=Mechanism.DISCRETE_GAUSSIAN, sensitivity=1 << 16, share=1.0)
PLAN = RoundPlan(path="test/round", releases=(ReleasePlan(spec=SPEC, noise_multiplier=3.0),))
SECRETS = [bytes(range(start, start + 32)) for start in range(N_CLIENTS)]


def noise_key(client):
    """Returns the run's key as `upload` derives it, from the client's own secret."""
    return derived_key(SECRETS[client], "run", bytes(32))


@pytest.fixture(scope="module")
def handed():
    """All secrets that shares give back: seeds of those present, the key of the one who has gone."""
    clients = [
        PairwiseClient(KeyStream(secret, encode_label("client", b"%d" % n)).uint64(4).tobytes(), n, CONTEXT)
        for n, secret in enumerate(SECRETS)
    ]
    advertised = [client.advertise() for client in clients]
    hoods = [[Neighbor(o, advertised[o]) for o in range(N_CLIENTS) if o != n] for n in range(N_CLIENTS)]
    statistics = [np.full(32, n, dtype=np.int64) for n in range(N_CLIENTS)]
    noised = [vector + draw_share(noise_key(n), b"sender", PLAN, vector, 3) for n, vector in enumerate(statistics)]
    letters = [client.share(hoods[n], THRESHOLD, noised[n]) for n, client in enumerate(clients)]
    present = frozenset(range(N_CLIENTS - 1))
    revealed = [
        answer
        for n in present
        for answer in clients[n].reveal(
            {o: (Neighbor(o, advertised[o]), letters[o][n]) for o in range(N_CLIENTS) if o != n}, present
        )
    ]
    tags = {n: clients[n].tag(noised[n]) for n in present}
    around = {n: [each.number for each in hoods[n]] for n in range(N_CLIENTS)}
    shared = SharedRound(dict(enumerate(advertised)), around, THRESHOLD, CONTEXT, tags)
    return statistics, pairwise_masks._secrets(revealed, shared, present)


def test_nothing_that_is_handed_out_is_a_noise_key_or_draws_a_share(handed):
    statistics, secrets = handed
    assert len(secrets) == N_CLIENTS
    for owner, secret in secrets.items():
        share = draw_share(noise_key(owner), b"sender", PLAN, statistics[owner], 3)
        guesses = [secret, derived_key(secret, "run", bytes(32)), KeyStream(secret, b"mask").uint64(4).tobytes()]
        for guess in guesses:
            assert guess != noise_key(owner)
            assert np.count_nonzero(draw_share(guess, b"sender", PLAN, statistics[owner], 3) != share) > 28


def test_one_partys_secret_draws_no_share_of_another(handed):
    statistics, _ = handed
    for other in range(1, N_CLIENTS):
        mine, theirs = (draw_share(noise_key(each), b"sender", PLAN, statistics[0], 3) for each in (0, other))
        assert np.count_nonzero(mine != theirs) > 28


def test_clients_with_one_secret_have_keys_of_their_own(tmp_path):
    secret = lake.write_key(tmp_path / "secret", SECRETS[0])
    state = str(tmp_path / "state")
    enrolled = {name: PartyState.enroll(state, secret, name) for name in ("north", "east")}
    found = {name: key_files.read_key(each.noise_uri) for name, each in enrolled.items()}
    assert found["north"] != found["east"]
    again = PartyState.of(state, secret, "north")
    assert key_files.read_key(again.noise_uri) == found["north"]
    assert found["north"] != key_files.read_key(again.seal_uri)
    assert os.stat(again.noise_uri).st_mode & 0o077 == 0
