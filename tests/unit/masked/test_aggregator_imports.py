"""The aggregator's code cannot reach what forms or removes masks: not by its imports, nor by theirs."""

import ast

import pytest

from tests.unit.test_import_direction import file_of, reached_from

AGGREGATOR = ("dapple_dp.transforms.masked.aggregator", "dapple_dp.pipelines.masked.aggregate")
CLIENTS = {
    "dapple_dp.transforms.masked.clients",
    "dapple_dp.transforms.masked.aggregation",
    "dapple_dp.transforms.masked.pairwise_legs",
    "dapple_dp.transforms.masked.pairwise_lists",
    "dapple_dp.transforms.masked.pairwise_rounds",
    "dapple_dp.transforms.numerics.masked.shared_masks",
    "dapple_dp.transforms.numerics.masked.pairwise_masks",
    "dapple_dp.transforms.numerics.masked.shamir",
    "dapple_dp.pipelines.masked.pairwise_upload",
    "dapple_dp.pipelines.masked.upload",
    "dapple_dp.pipelines.masked.unmask",
    "dapple_dp.pipelines.masked.clients_role",
    "dapple_dp.pipelines.masked.clients_settings",
}
RELEASING = {
    "dapple_dp.pipelines.kmeans.plan.planned_fit",
    "dapple_dp.pipelines.kmeans.fit",
    "dapple_dp.transforms.kmeans.feddp_kmeans.server",
    "dapple_dp.transforms.on_beam.round",
}


@pytest.mark.parametrize("module", AGGREGATOR)
def test_the_aggregator_cannot_import_what_knows_masks(module):
    reached = reached_from(module)
    assert {"dapple_dp.transforms.on_beam.noise_stage", "dapple_dp.schemas.masked.exchange"} <= reached
    assert module != "dapple_dp.pipelines.masked.aggregate" or "dapple_dp.transforms.masked.pairwise_files" in reached
    assert reached & CLIENTS == set()
    assert reached & RELEASING == set()


def test_a_planted_import_is_caught():
    def read(path):
        planted = "\ndef late():\n    from dapple_dp.transforms.numerics.masked.shared_masks import RoundMasks\n"
        return path.read_text() + planted * (path.name == "aggregation.py" or path.name == "file_bytes.py")

    assert "dapple_dp.transforms.numerics.masked.shared_masks" in reached_from(
        "dapple_dp.pipelines.masked.aggregate", read
    )


@pytest.mark.parametrize("module", AGGREGATOR)
def test_nothing_is_imported_by_a_name_made_at_run_time(module):
    for reached in reached_from(module):
        tree = ast.parse(file_of(reached).read_text())
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"import_module", "__import__", "exec", "eval"}, reached


def test_the_clients_modules_are_where_the_test_looks():
    assert all(file_of(module) for module in CLIENTS | RELEASING)
