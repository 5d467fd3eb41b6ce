"""Every honest job passes the privacy-flow checker, on by default, and its epsilon is that of its graph."""

import ast
import dataclasses
import json
import pathlib
import time

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.masked.aggregate import check_chunk
from dapple_dp.pipelines.run import graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.trusted_zone import sweep
from dapple_dp.schemas.choices import Algorithm, NoiseBy
from dapple_dp.schemas.core.plan import TRUSTED_ZONE, GraphPrivacy, Zone
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from dapple_dp.transforms.on_beam.checker import check_graph
from tests.scenes import lake, reports, sweeps
from tests.scenes.graphs import verdict
from tests.scenes.models import run_model_job, write_model
from tests.scenes.protocol_jobs import ALONE, settings_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
TREE = {"algorithm": "central_tree", "tree": {"radius": 7.0}, "server": None, "clipping": {}}
LLOYD = {"algorithm": "dp_lloyd", "clipping": {}}
BOX = {"domain": [-2.0, 7.0]}
HONEST = {str(each): settings_of(each) for each in ALONE} | {
    "client": {"unit": "client", "lloyd": {"steps": 2}},
    "paper": {"privacy__allocation": "paper"},
    "paper as printed": {"preset": "published", "lloyd": {"steps": 1}},
    "client paper": {"unit": "client", "privacy__allocation": "paper"},
    "all options": {
        "clipping__norm": "private",
        "quality": {"share": 0.05},
        "lloyd": {"steps": 1},
    },
    "sampled rows": {"data__client_id": "client_id", "data__max_rows_per_client": 5, "quality": {"share": 0.05}},
    "sampled rows, paper": {
        "data__client_id": "client_id",
        "data__max_rows_per_client": 5,
        "privacy__allocation": "paper",
    },
    "public rows": {"data__public_rows": 120},
    "tree": TREE | {"lloyd": {"steps": 1}, "quality": {"share": 0.05}},
    "tree of clients": TREE | {"unit": "client", "clipping": {"client_rows": 10}},
    "lloyd best": LLOYD | {"dp_lloyd": BOX | {"init": "best", "steps": 2}},
    "lloyd packed": LLOYD | {"dp_lloyd": BOX | {"init": "sphere_packing", "steps": 2}},
    "lloyd packed, of clients": LLOYD
    | {"unit": "client", "clipping": {"client_rows": 10}, "dp_lloyd": BOX | {"init": "sphere_packing", "steps": 2}},
    "medians of clients": LLOYD
    | {"algorithm": "dp_medians", "unit": "client", "clipping": {"client_rows": 10}}
    | {"dp_lloyd": BOX | {"init": "sphere_packing", "steps": 2}},
    "prototypes of clients": settings_of(Algorithm.K_PROTOTYPES) | {"unit": "client", "clipping": {"client_rows": 10}},
    "prototypes of sampled rows": settings_of(Algorithm.K_PROTOTYPES)
    | {"data__client_id": "client_id", "data__max_rows_per_client": 5},
    "sphere of clients": settings_of(Algorithm.SPHERICAL) | {"unit": "client", "clipping": {"client_rows": 10}},
    "medians after feddp": {"algorithm": "dp_medians", "dp_lloyd": BOX | {"init": "feddp_init", "steps": 1}},
    "lloyd after feddp": {"algorithm": "dp_lloyd", "dp_lloyd": BOX | {"init": "feddp_init", "steps": 1}},
    "lloyd with server rows": {"algorithm": "dp_lloyd", "dp_lloyd": BOX | {"init": "candidates", "steps": 2}}
    | {"clipping": {"norm": "domain", "center": "none"}},
    "lloyd after a tree": LLOYD | {"dp_lloyd": BOX | {"init": "central_tree", "steps": 1}},
}
MASKS = {
    "shared secret": {},
    "both noises": {"noise_by": NoiseBy.BOTH},
    "pairwise": {"pairwise": True},
    "pairwise, both noises": {"pairwise": True, "noise_by": NoiseBy.BOTH},
}


@pytest.mark.parametrize("kind", HONEST)
def test_a_private_fit_passes_and_spends_what_was_planned(world, kind):
    job = world.job(**HONEST[kind])
    found = verdict(lambda root: world.fit(root, job), job.promise)
    assert found.rounds == job.plan.rounds
    assert found.epsilon == pytest.approx(job.plan.epsilon, rel=1e-12)
    assert found.epsilon <= job.config.privacy.epsilon
    assert job.statement.of_graph(found).epsilon == found.epsilon


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("kind", ["client", "lloyd best"])
def test_a_masked_fit_passes_and_spends_as_much(world, kind, masks):
    job = world.job(**HONEST[kind], trust="masked")
    found = verdict(lambda root: world.fit(root, job, world.masking(**MASKS[masks])), job.promise)
    assert found.rounds == job.plan.rounds
    assert found.epsilon == pytest.approx(job.plan.epsilon, rel=1e-12)


@pytest.fixture
def checked(monkeypatch):
    """Promises and verdicts of the graphs that jobs run, each when it is checked."""
    found = []

    def checked_then(pipeline, promise):
        found.append((promise, check_graph(pipeline, promise)))
        return found[-1][1]

    monkeypatch.setattr(graph, "check_graph", checked_then)
    return found


def verdict_on(checked, outcome):
    """Verdicts on the job itself, before which rows may be staged."""
    assert outcome.code == 0, outcome.err
    *staging, own = checked
    assert all(each == (TRUSTED_ZONE, GraphPrivacy()) for each in staging)
    return own


@pytest.mark.parametrize("job", ["assign", "evaluate"])
def test_jobs_of_the_trusted_zone_pass(world, tmp_path, checked, job):
    model = write_model(tmp_path / "fit", lake.MEANS)
    settings = {"model": model, "data": {"path": world.path, "features": "x"}}
    found = verdict_on(checked, run_model_job(job, settings, tmp_path))
    assert found == (TRUSTED_ZONE, GraphPrivacy())


def test_clusterings_without_privacy_pass_in_the_trusted_zone(world, tmp_path, checked):
    data = {"path": world.path, "features": "x", "client_id": "client_id"}
    found = verdict_on(checked, lake.run_job({"algorithm": "optimal", "data": data, "n_clusters": 3}, tmp_path))
    assert found == (TRUSTED_ZONE, GraphPrivacy())


def test_grouping_runs_under_the_checker(world, tmp_path, monkeypatch):
    def check(root, promise):
        assert promise == TRUSTED_ZONE
        raise PrivacyFlowError("stop")

    monkeypatch.setattr(graph, "check_graph", check)
    settings = {"data": {"path": world.path, "features": "x", "client_id": "client_id"}}
    outcome = run_model_job("prepare", settings, tmp_path)
    assert (outcome.code, outcome.lines[-1]) == (4, "dapple: stop")
    assert not (tmp_path / "prepare").exists()


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_profile_passes_and_declares_its_plan(world, tmp_path, checked, unit):
    table = pq.read_table(world.path)
    path = lake.write_files(tmp_path / "lake", [table.append_column("age", table["client_id"])])
    settings = {
        "model": write_model(tmp_path / "fit", lake.MEANS),
        "data": {"path": path, "features": "x", "client_id": "client_id"},
        "privacy": {"unit": unit, "epsilon": 2.0, "delta": 1e-6},
        "profile": {"numeric": {"age": {"lower": 0, "upper": 20, "percentiles": [50]}}, "categorical": {}}
        | ({"max_rows_per_client": 5} if unit == "client" else {}),
    }
    promise, found = verdict_on(checked, run_model_job("profile", settings, tmp_path))
    assert promise.zone is Zone.PUBLIC
    assert found.declared == promise.declared
    assert [each.unit for each in found.declared] == [unit]


@pytest.mark.parametrize("mode", ["local", "shuffle"])
def test_reports_pass_and_declare_their_law(tmp_path, checked, mode):
    path = lake.write_lake(tmp_path / "rows", lake.mixture(3_000), np.arange(3_000))
    more = {"privacy__delta": 1e-6, "reports__min_batch": 3_000} if mode == "shuffle" else {}
    settings = reports.settings(path, reports__mode=mode, **more)
    promise, found = verdict_on(checked, run_model_job("encode", settings, tmp_path))
    assert (promise.zone, len(found.declared)) == (Zone.PUBLIC, 1)


def test_a_sweep_passes_with_the_plan_of_every_cell(world, tmp_path, checked):
    outcome = sweeps.run(sweeps.settings(world.path, world.server, epsilons=[1.0, 4.0]), tmp_path)
    promise, found = verdict_on(checked, outcome)
    assert (promise.zone, len(promise.plans)) == (Zone.TRUSTED, 6)
    assert set(found.rounds) == set(promise.noised)


def test_the_published_epsilon_is_that_of_the_graph(world, tmp_path, monkeypatch):
    outcome = lake.run_job(lake.job(world.path, world.server), tmp_path)
    assert outcome.code == 0, outcome.err
    stated = json.loads((tmp_path / "out" / "privacy.json").read_text())
    job = world.job()
    assert stated["epsilon"] == verdict(lambda root: world.fit(root, job), job.promise).epsilon


def test_a_statement_and_its_graph_must_agree(world):
    job = world.job()
    found = verdict(lambda root: world.fit(root, job), job.promise)
    for wrong in (GraphPrivacy(), dataclasses.replace(found, epsilon=found.epsilon * 1.001)):
        with pytest.raises(PrivacyFlowError, match="must compose to the planned epsilon"):
            job.statement.of_graph(wrong)


def test_chunks_are_checked_one_after_the_other_against_the_persisted_plan(world):
    rounds = world.job(lloyd={"steps": 2}).plan.rounds
    done = 0
    for chunk in (rounds[:2], rounds[2:3], (), rounds[3:]):
        done = check_chunk(chunk, rounds, done)
    assert done == len(rounds)
    for chunk, first in ((rounds[:1], 1), (rounds[1:3], 0), (rounds[-1:] * 2, len(rounds) - 1), (rounds[:1], 9)):
        with pytest.raises(PrivacyFlowError, match="must be those of the run's plan from number"):
            check_chunk(chunk, rounds, first)


def test_only_the_plan_of_a_unit_with_sampled_rows_is_checked_for_replaced_rows(world):
    whole = world.job()
    sampled = dataclasses.replace(whole.promise.plans[0], replaces=True)
    with pytest.raises(PrivacyFlowError, match="must state the sensitivity of its statistic"):
        verdict(lambda root: world.fit(root, whole), dataclasses.replace(whole.promise, plans=(sampled,)))


def test_no_job_runs_a_graph_by_another_way():
    """Only `run_graph` makes pipelines, and it runs none that it has not checked."""
    makers = {
        path.name
        for folder in ("pipelines", "transforms", "dapple_dp")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("beam.Pipeline", "Pipeline")
    }
    assert makers == {"graph.py"}
    calls = [line.strip() for line in (ROOT / "pipelines" / "run" / "graph.py").read_text().splitlines()]
    assert calls.index("result = check_graph(pipeline, promise)") < calls.index("running = pipeline.run()")


@pytest.mark.slow
def test_a_check_of_a_large_sweep_costs_little(world, tmp_path):
    def seconds(n_seeds):
        methods = {"rows": sweeps.METHODS["rows"]}
        job = sweeps.settings(world.path, world.server, methods, seeds=n_seeds)
        cells = sweep.plan_cells(sweep_config(job).cells)
        root = beam.Pipeline(options=beam_options([]))
        rows = sweep.job_rows(cells)
        rows = dataclasses.replace(rows, source=lake.staged(rows.source, tmp_path))
        sweep.build(root, cells, rows, world.key, str(tmp_path / "part"))
        promise, start = sweep.promise(cells), time.thread_time()
        check_graph(root, promise)
        return time.thread_time() - start

    # Of this thread on a processor, whatever else computes. Measured: 0.005 s for 35 cells, 0.2 s for 350.
    assert seconds(350) < 20.0
