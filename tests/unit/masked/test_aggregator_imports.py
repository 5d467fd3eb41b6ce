"""The aggregator's code cannot reach what forms or removes masks: not by its imports, nor by theirs."""

import ast

import pytest

from tests.unit.test_import_direction import file_of, reached_from

AGGREGATOR = ("transforms.masked.aggregator", "pipelines.masked.aggregate")
CLIENTS = {
    "transforms.masked.clients",
    "transforms.masked.aggregation",
    "transforms.masked.pairwise_legs",
    "transforms.masked.pairwise_lists",
    "transforms.masked.pairwise_rounds",
    "transforms.numerics.masked.shared_masks",
    "transforms.numerics.masked.pairwise_masks",
    "transforms.numerics.masked.shamir",
    "pipelines.masked.pairwise_upload",
    "pipelines.masked.upload",
    "pipelines.masked.unmask",
    "pipelines.masked.clients_role",
    "pipelines.masked.clients_settings",
}
RELEASING = {
    "pipelines.kmeans.plan.planned_fit",
    "pipelines.kmeans.fit",
    "transforms.kmeans.feddp_kmeans.server",
    "transforms.rounds.round",
}


@pytest.mark.parametrize("module", AGGREGATOR)
def test_the_aggregator_cannot_import_what_knows_masks(module):
    reached = reached_from(module)
    assert {"transforms.privacy.noise_stage", "schemas.masked.exchange"} <= reached
    assert module != "pipelines.masked.aggregate" or "transforms.masked.pairwise_files" in reached
    assert reached & CLIENTS == set()
    assert reached & RELEASING == set()


def test_a_planted_import_is_caught():
    def read(path):
        planted = "\ndef late():\n    from transforms.numerics.masked.shared_masks import RoundMasks\n"
        return path.read_text() + planted * (path.name == "aggregation.py" or path.name == "file_bytes.py")

    assert "transforms.numerics.masked.shared_masks" in reached_from("pipelines.masked.aggregate", read)


@pytest.mark.parametrize("module", AGGREGATOR)
def test_nothing_is_imported_by_a_name_made_at_run_time(module):
    for reached in reached_from(module):
        tree = ast.parse(file_of(reached).read_text())
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"import_module", "__import__", "exec", "eval"}, reached


def test_the_clients_modules_are_where_the_test_looks():
    assert all(file_of(module) for module in CLIENTS | RELEASING)
