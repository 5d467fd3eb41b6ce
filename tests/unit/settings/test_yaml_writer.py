"""YAML that is written is read back by the reader of jobs, whatever a column is called; nothing else writes YAML."""

import ast
import json
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.run.registry_entry import basic_section, registry_entry, registry_yaml
from dapple_dp.schemas.settings import yaml_text
from tests.scenes import lake

ROOT = pathlib.Path(__file__).resolve().parents[3]
NUMBERS = ["1e5", "1E5", "12e4", "5e-3", "1e+5", "1.5e3", "1.e3", ".5e3", "0e0", "1e400", "-1e5", "+1e5", "1.5", "7"]
NUMBERS += ["0x1F", "0o7", "017", "0b1", "1_000", "12:30", "1:30", ".inf", "-.INF", ".nan", "NaN", "inf"]
WORDS = ["yes", "no", "on", "off", "y", "n", "true", "True", "null", "~", "Null", "=", "<<", "2020-01-01", "?", "-"]
SIGNS = ["a: b", "a #b", "#a", "- a", "{a", "[a]", "a,b", "'", '"', "\\", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a"]
SPACE = [
    " a",
    "a ",
    "a  b",
    "a\tb",
    "\t",
    "a\nb",
    "\n",
    "a\r\nb",
    "a\u00a0b",
    "a\u2028b",
    "\x85a",
    "a\u2029",
    "long " * 60,
]
LETTERS = ["Größe", "Prénom", "名前", "שם", "é\u0301", "\U0001f600", "\ufeffa", "a\u202eb", "\u200b", "\x1b[2J", "\x7f"]
ODD = [*NUMBERS, *WORDS, *SIGNS, *SPACE, *LETTERS, "FILL IN", "a" * 300, "\U0010ffff", "\ud7ff"]


@pytest.mark.parametrize("write", [yaml_text.render, yaml_text.flow], ids=["block", "flow"])
def test_odd_strings_are_read_back(write):
    for text in ODD:
        data = {"key": text, "list": [text, 1e-6, None, True, 7], text: {text: [0.0, 1e300]}}
        assert yaml_text.parse(write(data)) == data, repr(text)


def test_random_strings_are_read_back():
    letters = random.Random(0)
    alphabet = "ab01e.+-_:# \t\n'\"\\{}[],&*!|>%@`?~=\u00e9\u2028\x85\u00a0\U0001f600"
    for _ in range(2000):
        text = "".join(letters.choices(alphabet, k=letters.randint(1, 7)))
        data = {text: [text]}
        assert yaml_text.parse(yaml_text.flow(data, 1 << 20)) == yaml_text.parse(yaml_text.render(data)) == data


def test_quoted_strings_are_one_printable_line():
    for text in ODD:
        assert yaml_text.parse(yaml_text.quoted(text)) == text
        assert yaml_text.quoted(text).isprintable()
    assert yaml_text.quoted("Größe") == '"Größe"'


def test_letters_stay_letters():
    assert yaml_text.flow({"features": ["Größe", "名前"]}) == "{features: [Größe, 名前]}"
    entry = registry_entry(basic=basic_section("Wähler in Zürich", "Größe"))
    text = registry_yaml(entry).decode()
    assert "Wähler in Zürich" in text
    assert yaml_text.parse(text) == entry


def test_init_writes_a_job_for_every_name(tmp_path):
    names = [name for name in ODD if "*" not in name and not name.startswith("FILL")]
    pq.write_table(pa.table({name: [1.0, 2.0] for name in names} | {"kind\n# x": ["a", "b"]}), tmp_path / "x.parquet")
    (tmp_path / "größe").mkdir()
    job = tmp_path / "größe/job.yaml"
    done = lake.run_command("init", "--data", str(tmp_path / "x.parquet"), "--domain", "0,100", "--output", str(job))
    assert done.code == 0, done.err
    summary = json.loads(done.out.splitlines()[-1])
    found = yaml_text.parse(job.read_text())
    assert {*found["data"]["features"], *summary["left_out"]} == {*names, "kind\n# x"}
    assert list(found["dp_lloyd"]["domain"]) == found["data"]["features"]
    assert set(found) == {"algorithm", "data", "n_clusters", "privacy", "dp_lloyd"}
    assert "\\x" not in "".join(line for line in job.read_text().splitlines() if "Größe" in line)


def test_nothing_else_writes_yaml():
    """A writer of its own would forget what the reader of jobs takes for a number."""
    found = set()
    for folder in ("schemas", "transforms", "pipelines", "dapple_dp"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                found |= {path.relative_to(ROOT).as_posix() for name in names if name.partition(".")[0] == "yaml"}
    assert found == {"schemas/settings/yaml_text.py"}
