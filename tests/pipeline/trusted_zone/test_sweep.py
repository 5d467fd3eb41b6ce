"""Whole sweeps: costs of what ran, resuming, and what stays out of sight."""

import json
import pathlib
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics
from sklearn.cluster import KMeans

from dapple_dp.pipelines.trusted_zone import sweep, sweep_page
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from dapple_dp.schemas.trusted_zone.sweep_results import CELL_SCHEMA, POINT_SCHEMA, SCORED_CELL_SCHEMA
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.privacy import key_files
from tests.scenes import lake, sweeps
from tests.scenes.models import write_model

N_ROWS = 600
FILES = {"report.html", "sweep.svg", "results.parquet", "summary.parquet", "sweep.json", "parts"}
ONE = {"rows": sweeps.METHODS["full"]}


class Desk:
    """A lake whose clients are split over files, so that a private copy is made."""

    def __init__(self, folder):
        self.points = lake.mixture(N_ROWS, seed=3)
        self.clients = np.arange(N_ROWS) % 60
        order = np.random.default_rng(0).permutation(N_ROWS)
        tables = [lake.table_of(self.points[rows], self.clients[rows]) for rows in np.array_split(order, 2)]
        self.data = lake.write_files(folder / "lake", tables, 140)
        self.server = lake.write_server(folder / "server.parquet")

    def settings(self, methods=None, **options):
        return sweeps.settings(self.data, self.server, methods, **options)

    def cost(self, centers):
        return ((self.points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("sweep"))


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def done(desk, tmp_path_factory):
    """A sweep under the key of the tests."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_files, "create_key", lambda uri, _: lake.write_key(pathlib.Path(uri)))
        return folder, sweeps.run(desk.settings(epsilons=[1.0, 4.0], seeds=2), folder, "--run_id", "one")


def test_a_sweep_of_all_kinds_of_methods(done):
    folder, outcome = done
    output = folder / "out"
    assert outcome.code == 0, outcome.err
    summary = {"run_id": "one", "output": str(output), "epsilon": None, "delta": None, "warnings": 1}
    assert json.loads(outcome.out) == summary
    assert {path.name for path in output.iterdir()} == FILES
    assert files_below(output / "parts") == {"part-0000.parquet"}
    found = sweeps.rows(folder)
    assert [row["method"] for row in found] == ["rows"] * 4 + ["clients"] * 4 + ["full"] * 4 + ["optimum"] * 2
    assert all(row["n_clusters"] == 3 for row in found)


def test_finished_cells_are_reported(done):
    lines = done[1].lines
    counted = [line for line in lines if " cells are done" in line]
    assert counted[0].startswith("dapple: round 1 of ")
    assert counted[0].endswith(": 0 of 12 cells are done")
    assert counted[-1] == "dapple: 14 of 14 cells are done, about 0 s left"
    assert len(counted) == len(set(counted))


def test_results_are_marked_and_typed(done):
    for name, schema in (("results.parquet", CELL_SCHEMA), ("summary.parquet", POINT_SCHEMA)):
        found = pq.read_schema(done[0] / "out" / name)
        assert found.equals(schema)
        assert found.metadata[b"dapple.private"] == b"false"
    state = sweeps.state(done[0])
    assert (state["private"], state["label"], state["n_cells"]) == (False, "evaluation (not private)", 14)


def test_what_cells_spent_is_theirs(done):
    for row in sweeps.rows(done[0]):
        if row["epsilon"] is None:
            assert (row["epsilon_spent"], row["delta"]) == (None, None)
        else:
            assert 0.9 * row["epsilon"] < row["epsilon_spent"] <= row["epsilon"]
            assert row["delta"] <= 1e-6


def test_methods_without_privacy_cost_least(desk, done):
    least = KMeans(3, n_init=10, random_state=0).fit(desk.points).inertia_ / N_ROWS
    found = {row["method"]: row["cost"] for row in sweeps.rows(done[0])}
    assert found.pop("optimum") == pytest.approx(least)
    assert min(found.values()) > least


def test_the_folder_is_its_owners(done):
    assert stat.S_IMODE((done[0] / "out").stat().st_mode) == 0o700


def test_no_cost_is_logged(done):
    folder, outcome = done
    for row in sweeps.rows(folder):
        assert str(row["cost"])[:6] not in outcome.err + outcome.out


def test_cells_cost_what_their_chains_cost(desk, done):
    """Rows come from a private copy in any order, and results do not know."""
    order = np.argsort(desk.clients, kind="stable")
    block = ClientBlock(desk.points[order], np.arange(0, N_ROWS + 1, 10))
    found = {row["cell"]: row["cost"] for row in sweeps.rows(done[0])}
    config = sweep_config(desk.settings(epsilons=[1.0, 4.0], seeds=2))
    cells = [each for each in sweep.plan_cells(config.cells) if each.fit is not None]
    assert len(cells) == 12
    for each in cells:
        model = loop.simulate(each.fit.initial, sweep._own_rounds(each), [block], lake.KEY).model()
        np.testing.assert_allclose(found[each.cell.digest], desk.cost(model.centers), rtol=1e-7)


def test_an_interrupted_sweep_goes_on_where_it_stopped(desk, tmp_path, monkeypatch):
    job = desk.settings(ONE, epsilons=[1.0, 2.0], seeds=2, cells_per_pipeline=2)
    ran, run_graph = [], sweep.run_graph

    def stop_at_the_second(build, options, promise):
        ran.append([each.cell.seed for each in build.keywords["cells"]])
        if len(ran) == 2:
            raise InputError("the lake must be there, got a leak; mend it.")
        run_graph(build, options, promise)

    monkeypatch.setattr(sweep, "run_graph", stop_at_the_second)
    stopped = sweeps.run(job, tmp_path)
    assert (stopped.code, stopped.out) == (2, "")
    assert stopped.lines[-1] == "dapple: the lake must be there, got a leak; mend it."
    assert files_below(tmp_path / "out") == {"sweep.json", "parts/part-0000.parquet"}
    first = (tmp_path / "out" / "parts" / "part-0000.parquet").read_bytes()

    resumed = sweeps.run(job, tmp_path)
    assert resumed.code == 0
    assert [line for line in resumed.lines if "calibrating" in line] == ["dapple: cells 3 to 4 of 4: calibrating"]
    assert len(ran) == 3
    assert (tmp_path / "out" / "parts" / "part-0000.parquet").read_bytes() == first
    found = sweeps.rows(tmp_path)
    assert [(row["epsilon"], row["seed"]) for row in found] == [(1.0, 0), (1.0, 1), (2.0, 0), (2.0, 1)]
    assert found[:2] == pa.Table.to_pylist(pq.read_table(tmp_path / "out" / "parts" / "part-0000.parquet"))


def test_a_sweep_that_did_nothing_leaves_nothing(desk, tmp_path):
    job = desk.settings(ONE) | {"server_data": {"path": str(tmp_path / "none")}}
    refused = sweeps.run(job, tmp_path)
    assert refused.code == 2
    assert "(server_data.path); check path and partitions" in refused.lines[-1]
    assert not (tmp_path / "out").exists()


def test_a_killed_process_leaves_no_key_for_long(desk, tmp_path):
    """A process that was killed cannot clean up; the next one does."""
    job = desk.settings(ONE)
    out = tmp_path / "out"
    (out / "private-x" / "rows.clients").mkdir(parents=True)
    (out / "private-x" / "run.key").write_bytes(bytes(32))
    (out / "sweep.json").write_text(json.dumps({"format": 1, "cells_digest": sweep_config(job).digest}))
    assert sweeps.run(job, tmp_path).code == 0
    assert {path.name for path in out.iterdir()} == FILES


def test_keys_and_copies_are_gone_also_when_a_part_fails(desk, tmp_path, monkeypatch):
    seen = []

    def fail(build, options, promise):
        seen.extend(files_below(tmp_path / "out"))
        raise ValueError("17.25")

    monkeypatch.setattr(sweep, "run_graph", fail)
    job = desk.settings(ONE | {"clients": sweeps.METHODS["clients"]})
    outcome = sweeps.run(job, tmp_path)
    assert outcome.code == 1
    assert "17.25" not in outcome.err
    assert any(name.endswith("run.key") for name in seen)
    assert any("rows.clients/" in name for name in seen)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def small(desk, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    job = desk.settings({"optimum": {"algorithm": "optimal"}})
    return folder, job, sweeps.run(job, folder)


def test_methods_without_privacy_alone(desk, small):
    folder, _, outcome = small
    assert outcome.code == 0, outcome.err
    (row,) = sweeps.rows(folder, "summary.parquet")
    assert (row["epsilon"], row["auc"], row["n_seeds"]) == (None, None, 1)
    assert "one seed" in (folder / "out" / "report.html").read_text()


def test_a_complete_sweep_is_not_run_again(small):
    folder, job, _ = small
    refused = sweeps.run(job, folder)
    assert refused.code == 2
    assert refused.lines[-1].startswith("dapple: the sweep in ")


def test_another_sweep_is_refused(small):
    folder, job, _ = small
    refused = sweeps.run(job | {"n_clusters": 2}, folder)
    assert refused.code == 2
    assert refused.lines[-1].startswith("dapple: --output must be a new folder or one of the same sweep, got ")


@pytest.mark.parametrize("content", [None, "[]", "{}", "{"])
def test_a_folder_of_something_else_is_refused(small, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ("notes.txt" if content is None else "sweep.json")).write_text(content or "mine")
    refused = sweeps.run(small[1], tmp_path)
    assert refused.code == 2
    assert "--output must be a new folder or one of the same sweep" in refused.lines[-1]
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_an_empty_folder_becomes_the_output(small, tmp_path):
    (tmp_path / "out").mkdir()
    folder = sweep.SweepFolder(str(tmp_path / "out"), sweep_config(small[1]))
    folder.open()
    folder.release()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"parts", "sweep.json"}


def test_a_file_and_a_remote_folder_are_refused(small, tmp_path):
    (tmp_path / "out").write_text("mine")
    assert sweeps.run(small[1], tmp_path).lines[-1].startswith("dapple: --output must be a new folder or one of the")
    (tmp_path / "out").unlink()
    words = ("--config", str(tmp_path / "sweep.yaml"), "--output", "memory://sweep")
    with pytest.raises(ConfigError, match="--output must be a local folder for a sweep, got memory://sweep"):
        sweep.SweepFolder(words[-1], sweep_config(small[1])).open()


def test_released_outputs_are_kept_apart(small, tmp_path):
    model = write_model(tmp_path / "fit", lake.MEANS)
    refused = sweeps.run(small[1], tmp_path, output="fit/below")
    assert refused.code == 2
    assert refused.lines[-1] == (
        f"dapple: --output must be a folder outside of released outputs, got {model}/below with centers.parquet in "
        f"{model}; choose another one."
    )


def test_server_data_of_another_width_are_refused(desk, tmp_path):
    wide = lake.write_server(tmp_path / "wide.parquet", lake.mixture(60, means=np.eye(3, 5)))
    methods = ONE | {"wide": ONE["rows"] | {"server_data": {"path": wide}}}
    refused = sweeps.run(desk.settings(methods), tmp_path)
    assert refused.code == 2
    assert refused.lines[-1].startswith(
        "dapple: server_data must have one width and give the same encodings in all methods"
    )


def test_encodings_must_be_learned_from_the_same_rows(tmp_path):
    names = ["a", "b"]
    for name, points in (("lake", lake.mixture(60)), ("one", 1.5 * lake.mixture(60)), ("two", 2.0 * lake.mixture(60))):
        lake.write_files(tmp_path / name, [pa.table(dict(zip(names, points.T[:2], strict=True)))])
    plain = {"algorithm": "feddp_kmeans"}
    methods = {name: plain | {"server_data": {"path": str(tmp_path / name)}} for name in ("one", "two")}
    job = sweeps.settings(str(tmp_path / "lake"), str(tmp_path / "one"), methods)
    job["data"] = {"path": str(tmp_path / "lake"), "features": names}
    job["encode"] = {"a": {"kind": "standardize", "from": "server"}}
    assert "give the same encodings" in sweeps.run(job, tmp_path).lines[-1]
    job["sweep"]["methods"]["two"] = plain
    outcome = sweeps.run(job, tmp_path)
    assert outcome.code == 0, outcome.err


def test_cells_are_scored_if_that_is_asked(desk, tmp_path):
    """Scores of a pooled and of a private method are those of scikit-learn on the same labels."""
    kinds = np.arange(N_ROWS) % 2
    folder = tmp_path / "lake"
    tables = [
        lake.table_of(desk.points[rows], desk.clients[rows]).append_column("kind", pa.array(kinds[rows]))
        for rows in np.array_split(np.arange(N_ROWS), 2)
    ]
    data = lake.write_files(folder, tables, 140)
    methods = {"rows": sweeps.METHODS["rows"], "optimum": {"algorithm": "optimal"}}
    settings = sweeps.settings(data, desk.server, methods, epsilons=[100.0], seeds=1)
    settings["sweep"]["evaluate"] = {"label": "kind", "silhouette_rows": N_ROWS}
    outcome = sweeps.run(settings, tmp_path)
    assert outcome.code == 0, outcome.err
    schema = pq.read_schema(tmp_path / "out" / "results.parquet")
    assert schema.metadata == SCORED_CELL_SCHEMA.metadata | {b"dapple.format": b"1"}
    assert schema.equals(SCORED_CELL_SCHEMA)
    private, row = sweeps.rows(tmp_path)
    assert private["silhouette"] == pytest.approx(row["silhouette"], abs=0.05)
    fitted = KMeans(3, n_init=10, random_state=0).fit(desk.points)
    assert row["cost"] == pytest.approx(fitted.inertia_ / N_ROWS, rel=1e-6)
    assert row["silhouette"] == pytest.approx(metrics.silhouette_score(desk.points, fitted.labels_), rel=1e-6)
    dispersion = metrics.calinski_harabasz_score(desk.points, fitted.labels_)
    assert row["calinski_harabasz"] == pytest.approx(dispersion, rel=1e-6)
    assert row["davies_bouldin"] == pytest.approx(metrics.davies_bouldin_score(desk.points, fitted.labels_), rel=1e-6)
    assert row["adjusted_rand"] == pytest.approx(metrics.adjusted_rand_score(kinds, fitted.labels_), abs=1e-9)
    assert row["fowlkes_mallows"] == pytest.approx(metrics.fowlkes_mallows_score(kinds, fitted.labels_), abs=1e-9)


def test_a_report_that_fails_costs_no_result(small, monkeypatch):
    folder, job, _ = small

    def fail(*_):
        raise ValueError("17.25")

    monkeypatch.setattr(sweep_page, "_page", fail)
    found = sweep_page.render(sweep_config(job), pq.read_table(folder / "out" / "summary.parquet"))
    assert "could not be written" in found.page.html
    assert "17.25" not in found.page.html
    assert found.page.warnings is None
    assert found.svg is None
