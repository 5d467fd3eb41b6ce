"""The private fits and streams that pages, examples and schedules show, and public data for each."""

import ast
import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.scenes import lake, pages

WIDTH = 4
"""Numbers in a list column, whose width no example says."""
_LETTERS = {"lab_*": ["lab_sodium", "lab_iron", "lab_iron_text", "lab_id"]}
"""What the patterns of examples stand for."""
_NAMES = {
    **dict.fromkeys(("folder", "OUTPUT", "home"), pathlib.Path()),
    **dict.fromkeys(("name", "night"), "north"),
}
"""What code around a job has given names to."""


_OF_LATER = ("stream", "recurring", "ledger", "trust", "masked", "key_uri")
"""Settings that the run before has not."""


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every job, whole, with the name of its place."""
    for name, _, text in pages.blocks("yaml"):
        part = yaml.safe_load(text)
        if "stream" in part or pages.is_of_a_fit(part):
            yield name, part if "stream" in part else pages.completed(part)
    for page in pages.PAGES:
        code = [text for language, text in pages.FENCE.findall(page.read_text()) if language in pages.PYTHON]
        yield from ((str(page.relative_to(pages.ROOT)), job) for job in _in_code("\n".join(code)))
    for path in sorted(each for folder in ("examples", "schedule") for each in (pages.ROOT / folder).rglob("*")):
        if path.suffix in (".yaml", ".py"):
            found = _in_code(path.read_text()) if path.suffix == ".py" else _within(yaml.safe_load(path.read_text()))
            yield from ((str(path.relative_to(pages.ROOT)), job) for job in found)


def _within(found: Any) -> Iterator[dict[str, Any]]:
    """Whole fits and streams in plain data, however deep."""
    if isinstance(found, dict) and {"algorithm", "data", "privacy", "n_clusters"} <= found.keys():
        yield from [found] if "stream" in found or pages.is_of_a_fit(found) else []
    elif isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _within(each)


def _in_code(text: str) -> Iterator[dict[str, Any]]:
    """Jobs that code writes as YAML, or as a mapping: what a literal, or a sum of them, evaluates to."""
    tree = ast.parse(text)
    names = dict(_NAMES)
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                names[each.targets[0].id] = ast.literal_eval(each.value)
    for each in ast.walk(tree):
        if isinstance(each, ast.Dict | ast.Constant | ast.BinOp) and "privacy" in ast.unparse(each):
            with contextlib.suppress(NameError, yaml.YAMLError):
                found = eval(compile(ast.Expression(each), "example", "eval"), dict(names))
                yield from _within(yaml.safe_load(found) if isinstance(found, str) else found)


def write_public(job: dict[str, Any]) -> None:
    """Writes a job's public files into the working folder: rows and terms, the run before it, columns."""
    if "*" in "".join(job["data"]["features"]):
        pathlib.Path(job["data"]["path"]).mkdir(parents=True)
        pq.write_table(rows_of(job, 1), pathlib.Path(job["data"]["path"]) / "part.parquet")
    if job.get("server_data", "none") != "none":
        pathlib.Path(job["server_data"]["path"]).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows_of(job, 300), job["server_data"]["path"])
    if "vocabulary" in job.get("names", {}):
        pathlib.Path(job["names"]["vocabulary"]).write_text("cat\ndog\n")
    previous = job.get("stream", {}).get("start") or job.get("recurring", {}).get("previous")
    if previous is not None:
        earlier = {name: job[name] for name in job if name not in _OF_LATER}
        pq.write_table(rows_of(job, 500), "earlier.parquet")
        data = {name: job["data"][name] for name in ("features", "client_id") if name in job["data"]}
        pathlib.Path("earlier.yaml").write_text(yaml.safe_dump(earlier | {"data": data | {"path": "earlier.parquet"}}))
        done = lake.run_command("fit", "--config", "earlier.yaml", "--output", previous)
        assert done.code == 0, done.err


def rows_of(job: dict[str, Any], n_rows: int) -> pa.Table:
    """Rows with the columns of a job, from 0 to 1; categories are those of its vocabulary."""
    rng, data = np.random.default_rng(5), job["data"]
    features = data["features"]
    if isinstance(features, str):
        return lake.table_of(rng.random((n_rows, data.get("width", WIDTH)))).rename_columns([features])
    found: dict[str, Any] = {name: rng.random(n_rows) for each in features for name in _LETTERS.get(each, [each])}
    for name, encoding in job.get("encode", {}).items():
        if encoding["kind"] == "one_hot":
            found[name] = rng.choice(encoding["vocabulary"], n_rows)
        elif encoding["kind"] == "terms":
            found[name] = [[each] for each in rng.choice(["cat", "dog"], n_rows)]
    if "client_id" in data:
        found[data["client_id"]] = np.arange(n_rows) // 10
    return pa.table(found)
