"""Attacks on the checks of keys: new jobs, stages and modules that go around `pipelines/run/run_keys.py` are found."""

import ast
import importlib
import pathlib
import pkgutil

import apache_beam as beam
import numpy as np
import pytest

from dapple_dp import transforms
from dapple_dp.pipelines.command import main
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.core import keys
from dapple_dp.transforms.masked.clients import SecretFn
from dapple_dp.transforms.masked.noise_stages import AddFurtherNoise
from dapple_dp.transforms.on_beam.noise_stage import AddNoise
from dapple_dp.transforms.on_beam.workers import HeldKeyFn
from dapple_dp.transforms.privacy.key_files import KeyFile
from tests import released_bytes
from tests.scenes import lake

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = [
    path.relative_to(ROOT)
    for floor in ("pipelines", "transforms", "dapple_dp")
    for path in sorted((ROOT / floor).rglob("*.py"))
]


@pytest.fixture(autouse=True)
def _keys_of_runs():
    with lake.keys_of_runs():
        yield


def tree(module):
    return ast.parse((ROOT / module).read_text())


def name_of(module):
    return ".".join(["dapple_dp", *(part for part in module.with_suffix("").parts if part != "dapple_dp")])


# What is written in the code.

KEYS = ("dapple_dp.transforms.core.keys", "dapple_dp.transforms.privacy.key_files")
READERS = {
    "dapple_dp.pipelines.run.run_keys": {"*"},
    "dapple_dp.pipelines.run.round_driver": {"make_key", "read_key"},
    "dapple_dp.pipelines.kmeans.account": {"kept_key", "key_digest"},
    "dapple_dp.pipelines.kmeans.fit_rounds": {"key_digest"},
    "dapple_dp.pipelines.kmeans.free_run": {"create_key", "delete_key"},
    # Of places only, which their callers have from `run_keys`.
    "dapple_dp.pipelines.kmeans.plan.fingerprint": {"read_key"},
    # Of the place of a run that is over, as `run_keys` makes it: the input is compared, and nothing is drawn.
    "dapple_dp.pipelines.plan.verify": {"key_digest"},
    "dapple_dp.pipelines.clustered_fl.planned": {"key_digest", "read_key"},
    "dapple_dp.pipelines.clustered_fl.job": {"key_digest"},
    "dapple_dp.pipelines.ledger.spending": {"key_digest"},
    # Made and checked only: what draws is at a place of `run_keys`, another one in each translation of a graph.
    "dapple_dp.beam.launch_keys": {"create_key", "read_key"},
    # A label, which is no key: `RunKey.mac` makes the digest of the key that draws.
    "dapple_dp.pipelines.kmeans.fit_in_memory": {"KEY_LABEL"},
    # Secrets of parties, which open and seal files and draw nothing.
    "dapple_dp.pipelines.masked.clients_role": {"read_key"},
    "dapple_dp.pipelines.masked.aggregate": {"read_key"},
    "dapple_dp.pipelines.masked.unmask": {"read_key"},
    "dapple_dp.pipelines.masked.party": {"create_key", "make_key", "read_key"},
    "dapple_dp.transforms.masked.party_state": {"is_made", "key_digest", "make_key"},
    "dapple_dp.transforms.masked.sealing": {"read_key"},
    "dapple_dp.transforms.masked.signing": {"read_key"},
    "dapple_dp.transforms.privacy.key_files": {"KEY_BYTES"},
}
"""Modules that make or read keys. A module that joins them must be shown to take its places from `run_keys`."""
HANDED = {"KeyFile", "KeySource"}
"""What a graph holds instead of a key; `HeldKeyFn` alone reads it."""


def imported_from_keys(module):
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module in KEYS:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "dapple_dp.transforms.privacy":
            found |= {"*" for alias in node.names if alias.name in ("keys", "key_files")}
        elif isinstance(node, ast.Import) and any(alias.name in KEYS for alias in node.names):
            found.add("*")
    return found


def test_nobody_else_makes_or_reads_keys():
    found = {name_of(module): names for module in MODULES if (names := imported_from_keys(module) - HANDED)}
    assert found == READERS


def calls(module, *names):
    """Returns how often a module calls something by these names."""
    found = [node.func for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]
    return sum(getattr(each, "attr", getattr(each, "id", None)) in names for each in found)


def test_places_and_nonces_are_made_in_one_module():
    makers = {name_of(module) for module in MODULES if calls(module, "run_place", "derived_key")}
    assert makers == {"dapple_dp.pipelines.run.run_keys"}
    nonces = {name_of(module) for module in MODULES if "RunNonce(" in (ROOT / module).read_text()}
    known = {
        "dapple_dp.pipelines.run.run_keys",
        "dapple_dp.pipelines.kmeans.account",
        "dapple_dp.pipelines.masked.clients_role",
    }
    assert nonces == known | {"dapple_dp.pipelines.plan.verify"}


def test_every_graph_passes_the_gate():
    """A pipeline is made in one place, where its graph is checked for kept keys before it runs."""
    assert {name_of(module) for module in MODULES if calls(module, "Pipeline")} == {"dapple_dp.pipelines.run.graph"}
    text = (ROOT / "pipelines/run/graph.py").read_text()
    assert text.index("run_keys.check_held_keys(pipeline)") < text.index("pipeline.run()")


def all_held():
    """Every class of DoFns that hold keys."""
    for each in pkgutil.walk_packages(transforms.__path__, "dapple_dp.transforms."):
        # The compiled kernel ends as modules do, and is none.
        if not each.name.endswith("._rows"):
            importlib.import_module(each.name)
    found, queue = set(), [HeldKeyFn]
    while queue:
        children = [
            each for each in queue.pop().__subclasses__() if each.__module__.startswith("dapple_dp.transforms.")
        ]
        found.update(children)
        queue += children
    return found


def test_only_masks_may_do_without_a_key_of_the_run():
    loose = {each for each in all_held() if not each.of_a_run}
    assert loose
    assert all(issubclass(each, SecretFn) for each in loose)
    assert not any("of_a_run" in vars(each) for each in loose - {SecretFn})


SEALING = {
    "dapple_dp.transforms.masked.sealing",
    "dapple_dp.transforms.masked.signing",
    "dapple_dp.transforms.masked.party_state",
}
"""Modules of keys by which parties seal and sign files; they draw nothing."""


def test_keys_are_read_by_functions_that_hold_them_and_say_so():
    """No DoFn may have a `setup` of its own that reads a key past `HeldKeyFn`, where `run_keys` looks."""
    for module in MODULES:
        if module.parts[0] == "transforms" and name_of(module) not in {*KEYS, *SEALING}:
            assert not imported_from_keys(module) - HANDED, module
            holds = name_of(module) == "dapple_dp.transforms.on_beam.workers"
            assert holds == ("read_key" in (ROOT / module).read_text()), module


# Every job, run.


class Desk(released_bytes.Desk):
    """Small jobs of every kind, under keys that are kept."""


def exchange(desk, leg):
    """A round of masked aggregation up to a leg."""
    return released_bytes.masked_jobs(desk, leg)


CASES = {
    "fit": [
        lambda desk: desk.run("fit-grouped", "fit", desk.fit("client", data__path=desk.people)),
        lambda desk: desk.run("fit-both", "fit", released_bytes._masked(desk, "record", noise_by="both")),
    ],
    "topics": [lambda desk: desk.run("topics", "topics", released_bytes._sphere(desk))],
    "stream": [
        lambda desk: released_bytes.stream(desk, "stream"),
        lambda desk: released_bytes.client_stream(desk, "stream-client"),
    ],
    "prepare": [lambda desk: released_bytes.prepare(desk, "prepare")],
    "assign": [lambda desk: released_bytes.model_job(desk, "assign-plain")],
    "evaluate": [lambda desk: released_bytes.model_job(desk, "evaluate-plain")],
    "profile": [lambda desk: released_bytes.profile(desk, "profile-client")],
    "sweep": [lambda desk: released_bytes.sweep(desk, "sweep")],
    "upload": [lambda desk: exchange(desk, "shared-record")],
    "aggregate": [],
    "unmask": [],
    "encode": [lambda desk: released_bytes.reports(desk, "nested")],
    "shuffle": [],
    "decode": [],
    "clustered_fl": [lambda desk: released_bytes.clustered_fl(desk, "r_dpcfl")],
}
"""Cases by the job that comes first in them; of the others, the case before runs them too."""
HOLD_NONE = {"assign", "evaluate"}


def test_every_job_has_a_case():
    assert list(CASES) == list(main.JOBS)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def held(monkeypatch):
    """Returns what every DoFn held that was set up: its class, its place and its key."""
    found, setup = [], HeldKeyFn.setup

    def look(function):
        if function.place:
            setup(function)
            found.append((type(function), function.place, function._held_key()))

    monkeypatch.setattr(HeldKeyFn, "setup", look)
    return found


@pytest.mark.parametrize("job", [job for job, cases in CASES.items() if cases])
def test_no_job_draws_under_a_kept_key(desk, held, job):
    for case in CASES[job]:
        case(desk)
    if job not in HOLD_NONE:
        assert held
    kept = {lake.KEY, *released_bytes.SECRETS}
    for function, place, key in held:
        if job == "upload" and issubclass(function, SecretFn):
            continue  # Clients of one run share their masks, which its plan distinguishes from other runs'.
        assert keys.is_run_place(place), function
        assert key not in kept, function


@pytest.mark.parametrize("job", ["fit", "topics", "prepare", "profile", "encode", "clustered_fl"])
def test_a_gate_that_forgets_to_derive_stops_every_job(desk, monkeypatch, job):
    desk.released("fit/record")
    monkeypatch.setattr(RunNonce, "place", lambda _, uri: uri)
    with pytest.raises(SystemExit, match=r"must hold the key of one run, got the kept key at"):
        CASES[job][-1](_Elsewhere(desk))


class _Elsewhere(Desk):
    """The lakes and models of another desk, whose jobs run in other folders."""

    def __init__(self, desk):
        vars(self).update(vars(desk))

    def run(self, case, job, settings, *words):
        return super().run(f"forgets/{case}", job, settings, *words)


# Graphs that hold a kept key.


@pytest.mark.parametrize(("stage", "element"), [(AddNoise, np.zeros(3, dtype=np.int64)), (AddFurtherNoise, ())])
def test_a_noise_stage_under_a_kept_key_is_not_run(world, monkeypatch, stage, element):
    plan = world.job().rounds[0].plan
    ran = []
    monkeypatch.setattr("dapple_dp.pipelines.run.graph.check_graph", lambda *_: None)
    monkeypatch.setattr(beam.Pipeline, "run", lambda *_: ran.append(1))

    def build(root):
        exact = root | beam.Create([element])
        _ = exact | "Stage" >> stage(plan=plan, key_source=KeyFile(world.key))

    with pytest.raises(PrivacyFlowError, match=r"must hold the key of one run, got the kept key"):
        run_graph(build, beam_options([]), TRUSTED_ZONE)
    assert not ran


@pytest.mark.parametrize("spelled", ["{key}#run=", "{key}#run=abc", "{key}#RUN={salt}", "{key}#run={salt} ", "{key}"])
def test_a_string_that_looks_like_a_place_is_none_of_ours(world, spelled):
    assert not keys.is_run_place(spelled.format(key=world.key, salt="0" * 64))
