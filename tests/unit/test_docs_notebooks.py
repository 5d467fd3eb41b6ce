"""Statements of a notebook on its commands are asserted where they run: the site isn't built on another outcome."""

import ast
import re

import pytest

from tests.scenes import pages

NOTEBOOKS = [page for page in pages.PAGES if "file_format: mystnb" in page.read_text()]
CELL = re.compile(r"^([^\n]*(?:\n[^\n`]+)*)\n\n```\{code-cell\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
WRITERS = {"pq.write_table", "create_key"}
COMMANDS = {"run", "Popen", "call", "check_call", "main", "system"}


def code_of(text):
    return ast.parse("\n".join(body for language, body in pages.FENCE.findall(text) if language == "{code-cell}"))


def commands_in(tree):
    """Calls that start a command."""
    called = (each for each in ast.walk(tree) if isinstance(each, ast.Call))
    return [each for each in called if ast.unparse(each.func).rpartition(".")[2] in COMMANDS]


def unchecked(text):
    """Calls of commands that stand in no assertion, and in no function that asserts on their exit code."""
    tree, checked = code_of(text), set()
    for each in ast.walk(tree):
        asserted = [inside for inside in ast.walk(each) if isinstance(inside, ast.Assert)]
        on_code = isinstance(each, ast.FunctionDef) and "returncode ==" in "".join(map(ast.unparse, asserted))
        for whole in [each] if on_code else asserted:
            checked.update(map(id, commands_in(whole)))
    return [ast.unparse(each) for each in commands_in(tree) if id(each) not in checked]


def called_in(*trees):
    """Names of what is called outside of functions that are only defined there."""
    parts = [it for tree in trees if not isinstance(tree, ast.FunctionDef) for it in ast.walk(tree)]
    return {ast.unparse(it.func) for it in parts if isinstance(it, ast.Call)}


def asserts(tree):
    return any(isinstance(each, ast.Assert) for each in ast.walk(tree))


def unheld(text):
    """Cells that show something and assert nothing; one that ends with a command shows what the page holds it to."""
    cells = [ast.parse(body) for language, body in pages.FENCE.findall(text) if language == "{code-cell}"]
    quiet = {each.name for cell in cells for each in cell.body if isinstance(each, ast.FunctionDef) and asserts(each)}
    found = []
    for cell in cells:
        last = cell.body[-1]
        shows = isinstance(last, ast.Expr) and not called_in(last) & (quiet | WRITERS)
        held = any(asserts(each) for each in cell.body if not isinstance(each, ast.FunctionDef))
        if (shows or "print" in called_in(*cell.body)) and not held:
            found.append(ast.unparse(cell))
    return found


def refusals(text):
    """Code of each cell that is introduced as a refusal."""
    return [code for before, code in CELL.findall(text) if "refuse" in before and before.endswith(":")]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_every_command_must_end_as_the_page_says(page):
    assert unchecked(page.read_text()) == []


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_what_a_cell_shows_is_held_by_an_assertion(page):
    """The text beside it says what is seen there, and another build draws other noise."""
    assert unheld(page.read_text()) == []


@pytest.mark.parametrize(
    ("cell", "held"),
    [
        ("centers.round(2)", False),
        ("print(centers)", False),
        ("def show():\n    print(1)\nx = 1", True),
        ("print(centers)\nassert cost(centers) < 2", True),
        ("def dapple():\n    assert main() == 0\ndapple()", True),
        ("def dapple():\n    assert main() == 0\nprint(dapple())", False),
        ("_ = model.fit(rows)", True),
    ],
)
def test_a_cell_that_shows_and_holds_nothing_is_found(cell, held):
    assert unheld(f"```{{code-cell}}\n{cell}\n```\n") == ([] if held else [ast.unparse(ast.parse(cell))])


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_a_refusal_is_one(page):
    for code in refusals(page.read_text()):
        assert re.search(r"code=[2345]\b", code), code


def test_a_refusal_and_a_command_are_found():
    """The checks above look at something: notebooks run commands, one of which is refused."""
    assert sum(len(refusals(page.read_text())) for page in NOTEBOOKS) == 1
    assert sum(len(commands_in(code_of(page.read_text()))) for page in NOTEBOOKS) >= 2
