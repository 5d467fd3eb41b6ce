"""Sentences of the product and of its pages that claim something, found in the sources."""

import ast
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLAIM = re.compile(
    r"\b(for certain|certainly|19 of 20|at most|never|always|cannot|can't|can not|guaranteed|impossible)\b"
    r"|\b9[59](\.\d)? ?%",
    re.IGNORECASE,
)
"""Words of a claim that holds without exception, or in so many cases."""
_RULE = re.compile(r"\bmust (not )?\b|cannot be (read|written|deleted)|can't be opened")
"""Of a refusal or the rule of a setting: what is checked when it is said."""
STATING = (
    *("schemas/privacy/statement.py", "schemas/core/unit.py", "schemas/masked/coalitions.py"),
    *("schemas/clustered_fl/plan.py", "pipelines/page", "pipelines/kmeans/report", "pipelines/reports/decode.py"),
    *("pipelines/reports/outputs.py", "pipelines/clustered_fl/job.py", "pipelines/clustered_fl/models_page.py"),
    *("pipelines/profile", "pipelines/kmeans/stream/windows_page.py", "pipelines/run/registry_entry.py"),
    *("pipelines/ledger/remaining.py", "pipelines/trusted_zone/sweep_page.py"),
)
"""Modules and packages that write labels, registry entries and pages."""
BESIDE_DOCS = (
    *("README.md", "SECURITY.md", "benchmarks/arena/README.md", "benchmarks/papers/coverage.md"),
    "transforms/numerics/reports/FORMAT.md",
)
"""Pages outside of `docs` that say something of the product."""
_CHOOSES = (ast.IfExp, ast.If, ast.Dict, ast.BoolOp, ast.Raise, ast.comprehension)
_ENOUGH_WORDS = 5


def _files(places: tuple[str, ...]) -> Iterator[pathlib.Path]:
    for place in places:
        path = ROOT / place
        yield from (path,) if path.is_file() else sorted(path.rglob("*.py"))


def _texts(path: pathlib.Path) -> Iterator[tuple[str, bool]]:
    """Strings of a module but for docstrings, values left out, and whether nothing decides on whether they are said."""

    def walk(node: ast.AST, always: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values), False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, always
        always = always and not isinstance(node, _CHOOSES)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
                yield from walk(child, always)

    yield from walk(ast.parse(path.read_text()), True)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def constants() -> dict[str, str]:
    """Texts of label, registry entry and pages that every run has, whatever its record says, and their files."""
    found = {}
    for path in _files(STATING):
        for text, always in _texts(path):
            if always and len(re.findall(r"[A-Za-z]{2,}", text)) >= _ENOUGH_WORDS:
                found[_plain(text)] = str(path.relative_to(ROOT))
    return found


def product_claims() -> dict[str, str]:
    """Sentences with a word of `CLAIM` that the product may print, and their files; rules of settings aside."""
    found = {}
    for path in _files(("dapple_dp", "pipelines", "schemas", "transforms")):
        for text, _ in _texts(path):
            for sentence in re.split(r"(?<=[.;:])\s+(?=[A-Z])", _plain(text)):
                if CLAIM.search(sentence) and not _RULE.search(text):
                    found[sentence] = str(path.relative_to(ROOT))
    return found


def page_claims() -> dict[str, str]:
    """Sentences with a word of `CLAIM` in the pages that users read, and their files."""
    found = {}
    docs = (path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts)
    for path in (*(ROOT / name for name in BESIDE_DOCS), *docs):
        if path.name == "settings.md":
            continue
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for block in re.split(r"\n\s*\n|\n(?=[-*|] )|\n(?=\d+\. )", text):
            for sentence in re.split(r"(?<=[.!?]) +(?=[A-Z*`\[(])", _plain(block)):
                if CLAIM.search(sentence):
                    found[sentence] = str(path.relative_to(ROOT))
    return found


LISTED = ROOT / "tests" / "data" / "sentences.tsv"
UNCLASSIFIED = "unclassified"


class Listed(NamedTuple):
    """A line of the list.

    Attributes:
      part: C for constants of pages, P for claims of the product, D for claims of its pages.
      kind: one of `KINDS`.
      how: file, or file::test, that holds it or makes it; "-" where nothing has to.
      where: file of the sentence.
      sentence: it.
    """

    part: str
    kind: str
    how: str
    where: str
    sentence: str


KINDS = {
    # fact: of every run of the job. part: of a sentence that the record of the run completes or chooses.
    "C": ("fact", "part", "heading", "advice", "log"),
    # test: fails where its assumption does. record: a value of the run. limit: says what is not promised or not known.
    "P": ("test", "record", "rule", "proof", "limit", "advice"),
    "D": ("test", "measured", "rule", "proof", "limit", "advice", "source"),
}


def found() -> dict[tuple[str, str], str]:
    """All sentences of the sources by part, and their files."""
    parts = {"C": constants(), "P": product_claims(), "D": page_claims()}
    return {(part, sentence): where for part, texts in parts.items() for sentence, where in texts.items()}


def listed() -> dict[tuple[str, str], Listed]:
    """The committed list."""
    lines = (Listed(*line.split("\t")) for line in LISTED.read_text().splitlines())
    return {(each.part, each.sentence): each for each in lines}


def write() -> None:
    """Renews the list: what is gone leaves, and what is new waits to be classified."""
    known = listed()
    lines = []
    for (part, sentence), where in found().items():
        old = known.get((part, sentence), Listed(part, UNCLASSIFIED, "-", where, sentence))
        lines.append("\t".join(old._replace(where=where)))
    LISTED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write()
