"""Plain American English: no page, docstring, comment, message or name of a test has a word of this list.

CONTRIBUTING says why.
"""

import ast
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTEAD = {
    r"octets?": "bytes",
    r"anew": "again, from scratch, or a verb with re-",
    r"whoever": "the role (the aggregator, a reader), or anyone who",
    r"somebody": "the role, or someone",
    r"told|tells|tell (\w+ )?apart": "say, show, reveal, report, distinguish",
    # A point lies near a center, but a file is in a folder.
    r"lay|lies? (at|in|on|beside|below|outside of|there|here)( the| an?| its| their| one| several)?( \w+)?"
    r" (folders?|files?|stores?|disks?|rooms?|memory|exchange|lake|shards?|tables?|ledger)": "is, are, was, were",
    r"hence|thereby|be it|ought|as ever|for ever|in vain": "so, by this, must, as before, forever, too long",
    r"by (itself|themselves)": "on its own",
    r"as good as|to the letter": "matches, as printed",
    r"sees? to it|speaks? of|comes? by": "ensure, name, execute",
    r"so many(?!(\W+\w+){0,6}\W+(that|as)\b)": "this many, that many",
    r"grey|behaviour|(neighbour|colour|organis|normalis)\w*|centres?": "American spelling",
}
LISTED = re.compile("|".join(rf"\b({word})\b" for word in INSTEAD) + '|"""What is', re.IGNORECASE)
IN_NAMES = re.compile(
    rf"{LISTED.pattern}|^(what (is|was)|who|of two)\b|\b(is|are) none$|\b(that|which|who) (is|are) none\b",
    re.IGNORECASE,
)
"""Names of tests do not begin with a clause in the place of a noun either, and nothing in them is \"none\"."""
NAMES = re.compile(r"`[^`\n]*`|\{[^{}\n]*\}|(?<=[\"'])\w+(?=[\"'])|\w+\[|^ +\w+: |#[\w-]+", re.MULTILINE)
"""What looks like a name of the code: in backticks, braces or quotes, an attribute that is described, an anchor."""


def prose(path: pathlib.Path) -> str:
    """The text of a page; of a module its comments and strings, each on lines of their own."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        text = "\n".join(token.string for token in tokens if token.type in kinds)
    return re.sub(r"\s+(?:# )?", " ", NAMES.sub(" ", text))


def files() -> list[pathlib.Path]:
    """Pages and modules of the repository; results of benchmarks keep the words of their day."""
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".") and path.name != "out"]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    ours = [path for path in found if path.suffix in (".md", ".py", ".yaml", ".sh") and path != pathlib.Path(__file__)]
    return [path for path in ours if ROOT / "benchmarks" / "results" not in path.parents]


def test_no_listed_word_is_used():
    hits = [(str(path.relative_to(ROOT)), found[0]) for path in files() for found in LISTED.finditer(prose(path))]
    assert hits == []


def test_no_test_has_a_listed_word_in_its_name():
    modules = {path: ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for path in (ROOT / "tests").rglob("*.py")}
    names = [
        (str(path.relative_to(ROOT)), node.name)
        for path, nodes in modules.items()
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert [hit for hit in names if IN_NAMES.search(hit[1].removeprefix("test_").replace("_", " "))] == []
    assert len(names) > 3000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("'''Reads octets.'''", ["octets"]),
        ("# A file lies in\n# the folder.", ["lies in the folder"]),
        ("# A point lies in the ball.", []),
        ("x = 'told'  # of `told`", []),
        ("y = f'ask {told} anew'", ["anew"]),
    ],
)
def test_names_and_points_are_no_words(tmp_path, text, found):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert [hit[0] for hit in LISTED.finditer(prose(path))] == found
