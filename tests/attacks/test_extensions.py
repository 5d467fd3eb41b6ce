"""Types of a third party are registered with a neighbor test, or refused; and no run hides that it rests on them."""

import ast
import dataclasses
import json
import pathlib

import numpy as np
import pytest

from dapple_dp.api import register_audited
from dapple_dp.pipelines.run.folder import PRIVACY_FILE, RunFolder
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core import known_objects
from dapple_dp.transforms.core.statistics import lattice, rows
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from tests.scenes import lake
from tests.scenes.graphs import refused, verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HalvedContract(TableContract):
    """Takes half of every row: as bounded as before."""

    def to_block(self, table, where):
        block = TableContract.to_block(self, table, where)
        return ClientBlock(block.points / 2, block.offsets)


def moves(factor):
    """A row more moves the number of rows by `factor` times as much."""

    def test(random):
        points = random.normal(size=(int(random.integers(1, 20)), 3))
        more = np.concatenate([points, random.normal(size=(1, 3))])
        moved = rows.count(ClientBlock(more)) - rows.count(ClientBlock(points))
        return factor * float(abs(moved[0])), float(lattice.SUM_UNITS)

    return test


def neighbors(random):
    """Rows of the extension stay in their ball."""
    rows = random.normal(size=(1, 3)) * 10.0 ** random.integers(-3, 9)
    moved = Frame(Lattice(np.zeros(3), 1.0)).quantize(rows / 2, lattice.SUM_BITS)
    return float(np.sqrt(lattice.squared_norms(moved))[0]), float(lattice.SUM_UNITS)


def too_far(random):
    return moves(2.0)(random)


def nowhere(random):
    return moves(0.0)(random)


def backward(random):
    """Moves by less than nothing, but not always."""
    return float(random.choice([-0.5, 0.5])), 1.0


def nan(random):
    return float("nan"), 1.0


def without_bound(random):
    return 1.0, float("inf")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(known_objects, "REGISTERED", {})


def halved(job):
    fields = {each.name: getattr(job.contract, each.name) for each in dataclasses.fields(job.contract)}
    return dataclasses.replace(job, contract=HalvedContract(**fields))


def test_a_registered_type_runs_and_is_named_in_the_guarantee(world):
    job = halved(world.job())
    assert "must be handed objects of audited types" in refused(lambda root: world.fit(root, job), job.promise)
    found = register_audited(HalvedContract, neighbor_test=neighbors)
    assert found.name == "test_extensions:HalvedContract"
    assert 0.9 < found.largest <= 1.0
    checked = verdict(lambda root: world.fit(root, job), job.promise)
    assert checked.extended == (found.to_json(),)
    assert job.statement.of_graph(checked).to_json()["extended"] == [found.to_json()]


def test_every_privacy_file_of_an_extended_process_is_marked(world, tmp_path):
    plain = lake.run_job(lake.job(world.path, world.server), tmp_path)
    assert plain.code == 0, plain.err
    assert "extended" not in json.loads((tmp_path / "out" / PRIVACY_FILE).read_text())
    found = register_audited(HalvedContract, neighbor_test=neighbors)
    (tmp_path / "again").mkdir()
    assert lake.run_job(lake.job(world.path, world.server), tmp_path / "again").code == 0
    stated = json.loads((tmp_path / "again" / "out" / PRIVACY_FILE).read_text())
    assert stated["extended"] == [found.to_json()]
    assert stated["extended"][0]["neighbor_test"] == "test_extensions:neighbors"


def test_there_is_one_place_that_writes_the_guarantee(tmp_path):
    """A new job cannot stage `privacy.json` past the mark."""
    folder = RunFolder(str(tmp_path / "out"), "run")
    folder.open()
    with pytest.raises(ValueError, match="must be staged by write_privacy"):
        folder.write(PRIVACY_FILE, b"{}")
    register_audited(HalvedContract, neighbor_test=neighbors)
    folder.write_privacy({"epsilon": 1.0})
    assert json.loads((pathlib.Path(folder.staging) / PRIVACY_FILE).read_bytes())["extended"]
    naming = {
        str(path.relative_to(ROOT))
        for top in ("pipelines", "transforms", "dapple_dp")
        for path in (ROOT / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == PRIVACY_FILE
    }
    # The others read the file of an earlier run.
    readers = {"pipelines/kmeans/plan/previous_run.py", "pipelines/kmeans/stream/history.py"}
    assert naming == {"pipelines/run/folder.py", *readers}


@pytest.mark.parametrize("test", [too_far, nowhere, backward, nan, without_bound])
def test_a_type_whose_neighbor_test_fails_is_not_registered(test):
    with pytest.raises(PrivacyFlowError):
        register_audited(HalvedContract, neighbor_test=test)
    assert known_objects.marks() == []


def test_types_without_a_name_are_not_registered():
    @dataclasses.dataclass(frozen=True)
    class Local(TableContract):
        """Stands in no module."""

    for kind, test in ((Local, neighbors), (HalvedContract, lambda random: (0.0, 1.0)), (neighbors, neighbors)):
        with pytest.raises(PrivacyFlowError, match="must be defined at the top of a module"):
            register_audited(kind, neighbor_test=test)


def test_an_audited_type_is_not_registered_again():
    with pytest.raises(PrivacyFlowError, match="is already audited"):
        register_audited(TableContract, neighbor_test=neighbors)


def test_a_registered_type_is_known_by_identity_too(world):
    register_audited(HalvedContract, neighbor_test=neighbors)

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Further(HalvedContract):
        """Derived from a registered type."""

    job = world.job()
    fields = {each.name: getattr(job.contract, each.name) for each in dataclasses.fields(job.contract)}
    wrong = dataclasses.replace(job, contract=Further(**fields))
    assert "Further, which is no audited type" in refused(lambda root: world.fit(root, wrong), job.promise)


def test_a_run_in_several_jobs_does_without_registered_types(world):
    """An uploader cannot mark what the aggregator publishes."""
    register_audited(HalvedContract, neighbor_test=neighbors)
    job = world.job(trust="masked")
    sentence = refused(lambda root: None, dataclasses.replace(job.promise, stages=()))
    assert "a run in several jobs must do without registered types" in sentence
