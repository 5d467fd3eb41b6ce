"""Every job refuses objects of unknown types, and every audited type has its own lookalike refused."""

import ast
import dataclasses
import functools
import importlib
import pathlib
import types

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import PickleCoder, registry
from apache_beam.utils.shared import Shared

from dapple_dp.pipelines.trusted_zone import sweep
from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Promise, PromisedPlan, Zone
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from dapple_dp.transforms.clustered_fl.labeled_clients import ClientGroup, ListClients
from dapple_dp.transforms.clustered_fl.rounds import FederatedProtocol, TrainingSetup
from dapple_dp.transforms.core import known_objects
from dapple_dp.transforms.core.audited_types import ATTRIBUTES, AUDITED_TYPES, STATES
from dapple_dp.transforms.core.round import measure
from dapple_dp.transforms.masked.clients import Masking
from dapple_dp.transforms.reports.encode import EncodeReports
from tests.scenes import federation, lake, reports, sweeps
from tests.scenes.graphs import refused
from tests.scenes.models import run_model_job, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNKNOWN = "must be handed objects of audited types, got "


class Tripled(TableContract):
    """Counts every row three times; a contract by its class."""

    def to_block(self, table, where):
        block = super().to_block(table, where)
        return ClientBlock(np.repeat(block.points, 3, axis=0))


@pytest.fixture
def tripled(monkeypatch):
    """Whatever makes a contract for a job makes one of a subclass."""
    original = TableContract.from_config.__func__

    def from_config(cls, *args, **kwargs):
        found = original(cls, *args, **kwargs)
        return Tripled(**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})

    monkeypatch.setattr(TableContract, "from_config", classmethod(from_config))


def lake_settings(world):
    return {"path": world.path, "features": "x", "client_id": "client_id"}


def fit_job(world, folder, **settings):
    return lake.run_job(lake.job(world.path, world.server, **settings), folder)


def pooled_job(world, folder):
    settings = {"algorithm": "optimal", "data": lake_settings(world), "n_clusters": 3}
    return lake.run_job(settings, folder)


def model_job(world, folder, name, **more):
    settings = {"model": write_model(folder / "model", lake.MEANS), "data": lake_settings(world)} | more
    return run_model_job(name, settings, folder)


def prepare_job(world, folder):
    return run_model_job("prepare", {"data": lake_settings(world)}, folder)


def profile_job(world, folder):
    privacy = {"unit": "record", "epsilon": 2.0, "delta": 1e-6}
    columns = {"numeric": {}, "categorical": {}}
    return model_job(world, folder, "profile", privacy=privacy, profile=columns)


def encode_job(world, folder):
    return run_model_job("encode", reports.settings(world.path, reports__mode="local"), folder)


def sweep_job(world, folder):
    return sweeps.run(sweeps.settings(world.path, world.server, {"rows": sweeps.METHODS["rows"]}), folder)


def federated_job(world, folder):
    return run_model_job("clustered_fl", federation.job(federation.write_lake(folder / "lake")), folder)


JOBS = {
    "fit": fit_job,
    "fit of clients": functools.partial(fit_job, unit="client"),
    "fit under masks": functools.partial(fit_job, trust="masked"),
    "optimal": pooled_job,
    "assign": functools.partial(model_job, name="assign"),
    "evaluate": functools.partial(model_job, name="evaluate"),
    "prepare": prepare_job,
    "profile": profile_job,
    "encode": encode_job,
    "sweep": sweep_job,
    "clustered_fl": federated_job,
}


@pytest.mark.parametrize("job", JOBS)
def test_every_job_refuses_a_contract_of_a_subclass(world, tmp_path, tripled, job):
    outcome = JOBS[job](world, tmp_path)
    assert outcome.code == 4, outcome.err
    assert f"{UNKNOWN}one of test_job_objects:Tripled" in outcome.lines[-1]
    left = {each.name for each in tmp_path.iterdir() if each.suffix != ".yaml"}
    assert left <= {"model", "lake"}


# Each audited type


def resolved(name):
    module, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


@pytest.mark.parametrize("name", sorted(AUDITED_TYPES))
def test_every_audited_type_is_known_by_identity(name):
    kind = resolved(name)
    assert known_objects.type_name(kind) == name
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    # Nobody can derive a class from an enumeration that has members.
    bases = () if hasattr(kind, "_member_map_") else (kind,)
    assert known_objects.type_name(type(kind.__name__, (), names)) is None
    assert known_objects.type_name(types.new_class(kind.__name__, bases, {}, lambda body: body.update(names))) is None


@pytest.mark.parametrize("name", sorted(AUDITED_TYPES))
def test_every_audited_type_declares_what_its_objects_hold(name):
    """Slots or fields, or a list of attributes for those of Beam; no attribute is taken for granted."""
    kind = resolved(name)
    declares = dataclasses.is_dataclass(kind) or hasattr(kind, "__pydantic_fields__") or hasattr(kind, "_fields")
    members = hasattr(kind, "_member_map_")
    assert declares or members or name in ATTRIBUTES or name.startswith("apache_beam.")


def test_states_tell_their_unit():
    assert all(isinstance(resolved(name).privacy_unit, property) for name in STATES)


# Objects of single jobs


def test_a_masking_of_a_subclass_is_refused(world):
    class Open(Masking):
        """Nobody knows what it masks with."""

    masking = Open(**{field.name: getattr(world.masking(), field.name) for field in dataclasses.fields(Masking)})
    job = world.job(trust="masked")
    assert f"{UNKNOWN}one of" in refused(lambda root: world.fit(root, job, masking), job.promise)


class Law(ReportParameters):
    """Equals every other law."""

    __hash__ = ReportParameters.__hash__

    def __eq__(self, other):
        return True


def test_a_law_of_reports_that_equals_every_other_is_refused(world):
    honest = reports.parameters()
    law = Law(**{field.name: getattr(honest, field.name) for field in dataclasses.fields(honest)})
    contract = dataclasses.replace(world.job("client").contract, n_features=4)

    def build(root):
        shards = world.shards(root, dataclasses.replace(world.job("client"), contract=contract))
        return shards | "Encode" >> EncodeReports(parameters=law, contract=contract, key_uri=world.key)

    assert f"{UNKNOWN}one of test_job_objects:Law" in refused(build, Promise(zone=Zone.PUBLIC, declared=(honest,)))


def test_a_promise_that_equals_every_law_is_refused(world):
    honest = reports.parameters()
    law = Law(**{field.name: getattr(honest, field.name) for field in dataclasses.fields(honest)})
    sentence = refused(lambda root: None, Promise(zone=Zone.PUBLIC, declared=(law,)))
    assert "a job must promise objects of audited types, got one of test_job_objects:Law" in sentence


class Generous(PromisedPlan):
    """Allows whatever is spent."""

    __slots__ = ()


def test_a_promised_plan_of_a_subclass_is_refused(world):
    job = world.job()
    plan = job.promise.plans[0]
    fake = Generous(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)})
    sentence = refused(lambda root: world.fit(root, job), dataclasses.replace(job.promise, plans=(fake,)))
    assert "a job must promise objects of audited types, got one of test_job_objects:Generous" in sentence


def federated(terms, places=(), shared=None):
    setup = TrainingSetup(
        federation=terms,
        contract=LabeledContract(
            table=TableContract(feature_list="x", client_id="client_id", n_features=5, by_client=True),
            label="y",
            n_classes=3,
        ),
        key_uri="key",
        cache_bytes=1,
    )
    protocol = FederatedProtocol(setup, places, lambda n: [])
    protocol._shared = shared or protocol._shared
    return protocol


PLACE = ClientGroup(clients=(("a", 0), ("b", 1)), shards=(ShardRef("part", 0, 40),))


class Louder(tuple):
    """A silo that is no silo."""

    noise_multiplier = 1e-9


class OwnShared(Shared):
    """Hands workers something else than their rows."""

    def acquire(self, constructor_fn, tag=None):
        raise AssertionError


def test_terms_of_federated_training_are_looked_into():
    terms = federation.federation(rounds=1)
    silos = (*terms.silos[:-1], Louder())
    cases = {
        "Louder": federated(dataclasses.replace(terms, silos=silos), (PLACE,)),
        "OwnShared": federated(terms, (PLACE,), OwnShared()),
    }
    for name, protocol in cases.items():
        arrays = federated(terms).initial()
        promise = Promise(zone=Zone.PUBLIC, declared=((1, terms),))
        sentence = refused(lambda root, own=protocol, start=arrays: own.add_rounds(root, start, 1, 1), promise)
        assert f"{UNKNOWN}one of test_job_objects:{name}" in sentence


@pytest.mark.parametrize(
    "places",
    [
        (PLACE, PLACE),
        (PLACE, ClientGroup(clients=(("c", 1),), shards=())),
        (dataclasses.replace(PLACE, shards=PLACE.shards * 50),),
    ],
    ids=["group twice", "client twice", "shards often"],
)
def test_clients_of_federated_training_are_listed_once(places):
    root = beam.Pipeline()
    with pytest.raises(PrivacyFlowError, match="must be listed once, got some several times"):
        root | ListClients(places=places)


def test_references_to_rows_are_not_created():
    promise = Promise(zone=Zone.TRUSTED)
    sentence = refused(lambda root: root | "Own" >> beam.Create([[{"deep": PLACE}]]), promise)
    assert "must create public values, got references to rows" in sentence


class Sweep:
    """A sweep of one method at two budgets, and its graph."""

    def __init__(self, world, **method):
        methods = {"rows": sweeps.METHODS["rows"] | method}
        settings = sweeps.settings(world.path, world.server, methods, epsilons=[1.0, 4.0])
        self.world, self.cells = world, sweep.plan_cells(sweep_config(settings).cells)

    def build(self, root):
        rows = sweep.job_rows(self.cells)
        ready = dataclasses.replace(rows, source=lake.staged(rows.source, pathlib.Path(self.world.path).parent))
        sweep.build(root, self.cells, ready, self.world.key, "part")

    def refused(self, promise=None):
        return refused(self.build, promise or sweep.promise(self.cells))


def swapped(state):
    """The same state of the other unit."""
    other = Clients() if state.settings.unit == Rows() else Rows()
    return dataclasses.replace(state, settings=dataclasses.replace(state.settings, unit=other))


def test_a_cell_of_a_sweep_starts_from_a_state_of_its_own_unit(world):
    found = Sweep(world)
    last = found.cells[-1]
    wrong = dataclasses.replace(last.fit, initial=swapped(last.fit.initial))
    found.cells = (*found.cells[:-1], last._replace(fit=wrong))
    assert "must start from a state whose privacy unit is record, got a state of the other unit" in found.refused()


def test_no_cell_of_a_sweep_spends_more_than_its_own_budget(world):
    """The budget of one cell of several is derived from its rounds again."""
    found = Sweep(world)
    promise = sweep.promise(found.cells)
    tight = dataclasses.replace(promise.plans[0], epsilon=promise.plans[0].epsilon * 0.9)
    sentence = found.refused(dataclasses.replace(promise, plans=(tight, *promise.plans[1:])))
    assert sentence.startswith("the noise stages of the graph must spend at most epsilon")


class Codec(PickleCoder):
    """Runs on every element that passes it."""


@pytest.mark.parametrize("kind", [np.ndarray, ShardRef])
def test_a_registered_coder_is_refused(world, kind):
    registry.register_coder(kind, Codec)
    try:
        job = world.job()
        assert f"{UNKNOWN}one of test_job_objects:Codec" in refused(lambda root: world.fit(root, job), job.promise)
    finally:
        del registry._coders[kind]


def test_a_state_of_fewer_bins_than_the_plan_stops_the_round(world):
    """One server point: its single count would be added to every coordinate of the plan."""
    job = world.job()
    (weights,) = (each for each in job.rounds if each.plan.path.endswith("/weights"))
    block = ClientBlock(lake.mixture(10))
    one = np.ones(1, dtype=np.int64)
    for found in (one, one.astype(float), np.ones((weights.plan.size, 1), dtype=np.int64)):
        with pytest.raises(PrivacyFlowError, match="whole numbers, as in its plan"):
            measure(weights._replace(statistic=lambda block, state, found=found: found), block, job.initial)


def test_nobody_adds_up_statistics_by_another_way():
    """The code that forms the statistic of a round asks `measured`, which checks its shape."""
    callers = {
        str(path.relative_to(ROOT))
        for folder in ("pipelines", "transforms", "dapple_dp")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "statistic"
        if ast.unparse(node.func) != "quality.statistic"
    }
    assert callers == {"transforms/core/round.py"}
