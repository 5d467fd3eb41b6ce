"""The aggregator's code cannot reach what forms or removes masks: not by its imports, nor by theirs."""

import ast
import pathlib

import pytest

from tests.unit.test_import_direction import ROOMS, ROOT, imported_modules

AGGREGATOR = ("transforms.masked_sum", "pipelines.aggregate")
CLIENTS = {
    "transforms.client_messages",
    "transforms.masked_rounds",
    "transforms.pairwise_legs",
    "transforms.pairwise_rounds",
    "transforms.numerics.masking",
    "transforms.numerics.pairwise",
    "transforms.numerics.shamir",
    "pipelines.pairwise_upload",
    "pipelines.upload",
    "pipelines.unmask",
    "pipelines.clients_role",
}
RELEASING = {"pipelines.prepared_fit", "pipelines.fit", "transforms.feddp_server", "transforms.rounds"}


def file_of(module):
    path = ROOT.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.exists()), None)


def project_modules(source):
    """Modules of the project that a source imports; names taken out of a module stand for the module."""
    tops = {room.partition(".")[0] for room in ROOMS}
    for name in imported_modules(source):
        if name.partition(".")[0] in tops:
            yield from (each for each in (name, name.rpartition(".")[0]) if each and file_of(each))


def reached_from(module, read=pathlib.Path.read_text):
    found, queue = set(), [module]
    while queue:
        current = queue.pop()
        if current not in found:
            found.add(current)
            queue += project_modules(read(file_of(current)))
    return found


@pytest.mark.parametrize("module", AGGREGATOR)
def test_the_aggregator_cannot_import_what_knows_masks(module):
    reached = reached_from(module)
    assert {"transforms.noise", "schemas.masked_message"} <= reached
    assert module != "pipelines.aggregate" or "transforms.pairwise_files" in reached
    assert reached & CLIENTS == set()
    assert reached & RELEASING == set()


def test_a_planted_import_is_caught():
    def read(path):
        planted = "\ndef late():\n    from transforms.numerics.masking import RoundMasks\n"
        return path.read_text() + planted * (path.name == "aggregation.py" or path.name == "publish.py")

    assert "transforms.numerics.masking" in reached_from("pipelines.aggregate", read)


@pytest.mark.parametrize("module", AGGREGATOR)
def test_nothing_is_imported_by_a_name_made_at_run_time(module):
    for reached in reached_from(module):
        tree = ast.parse(file_of(reached).read_text())
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"import_module", "__import__", "exec", "eval"}, reached


def test_the_clients_modules_are_where_the_test_looks():
    assert all(file_of(module) for module in CLIENTS | RELEASING)
