"""Rounds of clustered federated learning as pipelines equal the same rounds without Beam, bit for bit."""

import dataclasses
import functools

import pytest
from apache_beam.internal import pickler
from apache_beam.utils.shared import Shared

from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.run.round_driver import run_chunks
from dapple_dp.schemas.choices import SelectionScore
from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.clustered_fl.records import FederatedState, Federation
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.clustered_fl.labeled_clients import Clients, InspectClients, read_parts
from dapple_dp.transforms.clustered_fl.rounds import FederatedProtocol, TrainingSetup, _TrainPrivatelyFn
from dapple_dp.transforms.files.checkpoint import RunBinding
from dapple_dp.transforms.tables.read import ListShards
from dapple_dp.transforms.tables.source import Source
from tests.scenes import federation, lake

pytestmark = pytest.mark.slow

BINDING = RunBinding(config_digest="", input_fingerprint="", key_digest="", plan_digest="")


def contract() -> LabeledContract:
    table = TableContract(features=(), feature_list="x", client_id="client_id", n_features=5, by_client=True)
    return LabeledContract(table=table, label="y", n_classes=3)


def inspect(root, path, out):
    shards = root | "List" >> ListShards(
        source=lake.staged(Source(path=path), f"{out}.listing"), contract=contract().table
    )
    _ = shards | "Inspect" >> InspectClients(contract=contract(), path=out)


def clients_of(folder, path) -> Clients:
    out = str(folder / "clients.json")
    run_graph(functools.partial(inspect, path=path, out=out), beam_options([]), TRUSTED_ZONE)
    return Clients.of(read_parts(str(folder / "clients.json")), contract())


def trained(
    folder, clients: Clients, terms: Federation, chunk: int = 3, cache_bytes: int = 1 << 20, flags: tuple[str, ...] = ()
) -> FederatedState:
    """The state after all rounds through pipelines, under the key of the tests."""
    key_uri = lake.write_key(folder / "key")
    setup = TrainingSetup(federation=terms, contract=contract(), key_uri=key_uri, cache_bytes=cache_bytes)
    protocol = FederatedProtocol(setup, clients.places, lambda n: [{"rounds": n}] if n else [])
    (folder / "run").mkdir()
    done = run_chunks(protocol, str(folder / "run"), BINDING, beam_options(flags), chunk)
    return FederatedState.from_arrays(dict(done.arrays))


@pytest.fixture(scope="module")
def clients(tmp_path_factory) -> Clients:
    folder = tmp_path_factory.mktemp("lake")
    return clients_of(folder, federation.write_lake(folder / "lake"))


def test_pipelines_equal_the_loop(tmp_path, clients):
    terms = federation.federation(rounds=4)
    assert trained(tmp_path, clients, terms).digest() == federation.looped(terms).digest()


def test_pipelines_select_by_loss_as_the_loop_does(tmp_path, clients):
    terms = federation.federation(rounds=4, select_by=SelectionScore.LOSS)
    assert trained(tmp_path, clients, terms).digest() == federation.looped(terms).digest()


def test_true_clusters_are_found(clients):
    state = federation.looped(federation.federation())
    assert len(state.models) == 2
    assert len({(int(each), index % 2) for index, each in enumerate(state.assignments)}) == 2


@pytest.mark.parametrize(("chunk", "cache_bytes"), [(1, 1 << 20), (4, 0)])
def test_chunks_and_caches_do_not_matter(tmp_path, clients, chunk, cache_bytes):
    terms = federation.federation(rounds=4)
    state = trained(tmp_path, clients, terms, chunk, cache_bytes)
    assert state.digest() == federation.looped(terms).digest()


def test_a_client_may_be_in_several_shards(tmp_path):
    found = clients_of(tmp_path, federation.write_lake(tmp_path / "lake", split=True))
    assert max(len(place.shards) for place in found.places) > 1
    terms = federation.federation(rounds=3)
    assert trained(tmp_path, found, terms).digest() == federation.looped(terms).digest()


def test_bundles_that_run_again_change_nothing(tmp_path, clients):
    terms = federation.federation(rounds=3)
    state = trained(tmp_path, clients, terms, flags=("--direct_runner_bundle_repeat=2",))
    assert state.digest() == federation.looped(terms).digest()


def test_worker_processes_change_nothing(tmp_path, clients):
    terms = federation.federation(rounds=3)
    flags = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    assert trained(tmp_path, clients, terms, flags=flags).digest() == federation.looped(terms).digest()


def test_other_terms_share_no_noise(clients):
    one = federation.federation(rounds=2)
    other = federation.federation(rounds=2, offer_rounds=(9,))
    assert federation.looped(one).models.tolist() != federation.looped(other).models.tolist()


def test_neither_key_nor_rows_travel(tmp_path, clients):
    key_uri = lake.write_key(tmp_path / "key")
    terms = federation.federation(rounds=2)
    setup = TrainingSetup(federation=terms, contract=contract(), key_uri=key_uri, cache_bytes=1 << 20)
    function = _TrainPrivatelyFn(setup, Shared())
    function.setup()
    state = FederatedState.from_arrays(dict(FederatedProtocol(setup, clients.places, list).initial()))
    assert len(list(function.process(clients.places[0], state))) == 2
    raw = pickler.dumps(function)
    assert lake.KEY not in raw
    copy = pickler.loads(raw)
    assert (copy._stream, copy._cache) == (None, None)
    with pytest.raises(RuntimeError, match="between setup and teardown"):
        list(copy.process(clients.places[0], state))
    function.teardown()
    assert function._stream is None


def test_a_client_that_sends_nothing_stops_the_round(tmp_path, clients):
    terms = federation.federation(rounds=1)
    fewer = dataclasses.replace(clients, places=clients.places[1:])
    with pytest.raises(ProtocolError, match="every client must send one update per round"):
        trained(tmp_path, fewer, terms)
