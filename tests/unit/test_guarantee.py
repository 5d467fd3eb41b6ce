"""The functions that the guarantee names after its lemmas exist, and no public function of the core is left out."""

import ast
import functools
import re

from tests.unit.test_import_direction import ROOT

NOTE = ROOT / "docs" / "guarantee.md"
NAMED = re.compile(r"`((?:\w+/)*\w+\.py):(\w+(?:\.\w+)?)`")
EXCEPTIONS = {
    "names of objects and code": "audit.py:is_round audit.py:parts audit.py:paths keys.py:is_run_place "
    "known_objects.py:innermost known_objects.py:is_a known_objects.py:is_state known_objects.py:marks "
    "known_objects.py:name_of known_objects.py:type_name",
    "blocks of rows, of any size": "statistics/client_chunks.py:clients_in_order statistics/client_chunks.py:owners "
    "statistics/lattice.py:row_blocks",
    "which kernel computes": "statistics/row_pass.py:kernel statistics/row_pass.py:use",
    "refusals alone": "statistics/lattice.py:check_shrinking statistics/row_pass.py:is_matrix "
    "statistics/row_pass.py:refused_rows",
    "draws under a public key": "loop.py:simulate",
}
"""Public functions of the core of which no lemma speaks, by what they are for."""


def path_of(name):
    if name.startswith("schemas/"):
        return name
    return f"transforms/{name}" if name.startswith("on_beam/") else f"transforms/core/{name}"


def named():
    """(file, name) of what the note names after its lemmas."""
    paragraphs = NOTE.read_text().split("\n\n")
    found = [NAMED.findall(each) for each in paragraphs if each.startswith("Core: ")]
    return {(path_of(path), name) for names in found for path, name in names}


@functools.cache
def defined(path):
    """Names of the functions and classes of a file, and of the methods of its classes."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def functions():
    """(file, name) of the public functions of the core."""
    for path in sorted((ROOT / "transforms" / "core").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield str(path.relative_to(ROOT)), node.name


def test_what_lemmas_name_exists():
    assert len(named()) > 60
    assert [(path, name) for path, name in sorted(named()) if name not in defined(path)] == []


def test_lemmas_speak_of_every_public_function_of_the_core():
    left = {(path.removeprefix("transforms/core/"), name) for path, name in functions() if (path, name) not in named()}
    assert left == {tuple(each.split(":")) for names in EXCEPTIONS.values() for each in names.split()}
