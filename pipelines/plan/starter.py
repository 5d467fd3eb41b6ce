"""`dapple init`: a first job with comments, from names and types of columns; no value and no statistic is read."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import yaml

from pipelines.plan.command_line import KINDS, parsed
from pipelines.run.options import beam_options
from pipelines.run.stores import check_stores
from pipelines.tables.private_source import private_source
from schemas.choices import Algorithm
from schemas.errors import ConfigError
from schemas.kmeans.fit_config import FitConfig, load_config
from schemas.privacy.plan import PrivacyUnit
from schemas.tables.columns import is_numeric, is_text
from schemas.tables.data_section import DataConfig
from transforms.files import new_file
from transforms.tables.read import first_schema

_ALGORITHMS = (Algorithm.DP_LLOYD, Algorithm.CENTRAL_TREE, Algorithm.FEDDP_KMEANS)
_SCHEMA = "# yaml-language-server: $schema=fit.schema.json"
_HEAD = (
    _SCHEMA,
    "# Editors complete and check this file after `dapple schema fit > fit.schema.json`.",
    "# Nothing here may be chosen by looking at the private rows: settings are public.",
    "# Next: fill in what says FILL IN, then `dapple plan --config` this file, which spends nothing.",
)


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command; returns the summary that is printed last.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    given = parsed("init", argv)
    check_stores({f"--{name}": getattr(given, name) for name in ("data", "output")})
    beam_options([])
    if given.algorithm not in _ALGORITHMS:
        raise ConfigError(f"--algorithm must be one of {', '.join(_ALGORITHMS)}, got {given.algorithm}; name one.")
    schema = _schema(given.data)
    _ask(given)
    text = job_text(given, schema)
    missing = not isinstance(_loaded(text), FitConfig)
    try:
        new_file.create(given.output, text.encode())
    except FileExistsError as error:
        raise ConfigError(f"--output must be a new file, got {given.output}; choose another one.") from error
    except OSError as error:
        raise ConfigError(f"--output must be a file that can be made, got {given.output}; check the folder.") from error
    after = "fill in what says FILL IN, then " if missing else ""
    sys.stdout.write(f"Wrote {given.output}: {after}see what it will cost by `dapple plan --config {given.output}`.\n")
    return {"output": given.output, "algorithm": given.algorithm, "complete": not missing}


def _ask(given: argparse.Namespace) -> None:
    """Asks, on a terminal, for what is missing; elsewhere, and after an empty answer, it is to be filled in."""
    if not sys.stdin.isatty():
        return
    client = given.client_id is not None
    asked = {
        "domain": (given.algorithm == Algorithm.DP_LLOYD, "Public interval of all features, such as 0,100"),
        "radius": (given.algorithm == Algorithm.CENTRAL_TREE, "Public largest distance of a row from the origin"),
        "server_data": (given.algorithm == Algorithm.FEDDP_KMEANS, "Path of public rows"),
        "client_rows": (client, "Public typical number of rows of a client"),
    }
    for name, (needed, question) in asked.items():
        if needed and getattr(given, name) is None:
            answer = input(f"{question}: ").strip()
            setattr(given, name, (answer if name == "server_data" else KINDS[name](answer)) if answer else None)


def job_text(given: argparse.Namespace, schema: pa.Schema) -> str:
    """A job as YAML with comments.

    Args:
      given: flags of `dapple init`.
      schema: of the private table, of which names and types are used.

    Raises:
      ConfigError: if a column that was named is not there, or no column holds numbers.
    """
    unit = PrivacyUnit.RECORD if given.client_id is None else PrivacyUnit.CLIENT
    if given.client_id is not None and given.client_id not in schema.names:
        raise ConfigError(f"--client_id must be a column, got {given.client_id!r}; name one of the table.")
    data: dict[str, Any] = {"path": given.data, "features": _features(schema, given.client_id)}
    if given.client_id is not None:
        data["client_id"] = given.client_id
    lines = [
        *_HEAD,
        *_yaml({"algorithm": given.algorithm}),
        *_yaml({"data": data}),
        *_left_out(schema, given.client_id),
        *_yaml({"n_clusters": given.clusters}),
        "# The unit says whom epsilon protects: one row, or all rows of one client.",
        *_yaml({"privacy": {"unit": str(unit), "epsilon": given.epsilon, "delta": given.delta}}),
        "# Choose delta well below 1 / the number of rows or clients.",
        *_bounds(given, unit),
        "# A reason per setting, and what the registry asks for, are copied to the outputs:",
        '# justification: {privacy.epsilon: "..."}',
        '# deployment: {approved_by: "...", intended_use: "..."}',
    ]
    return "\n".join(lines) + "\n"


def _bounds(given: argparse.Namespace, unit: PrivacyUnit) -> Iterator[str]:
    """Bounds on rows, and the sections of the algorithm."""
    clipping: dict[str, Any] = {}
    if given.algorithm == Algorithm.FEDDP_KMEANS:
        server = given.server_data
        yield f"# Public rows with the same columns, which you may publish.{_todo(server)}"
        yield from _yaml({"server_data": {"path": server}})
        clipping = {"norm": "server_radius"}
    if unit is PrivacyUnit.CLIENT:
        yield f"# The public typical number of rows of a client.{_todo(given.client_rows)}"
        clipping["client_rows"] = given.client_rows
    if clipping:
        yield from _yaml({"clipping": clipping})
    if given.algorithm == Algorithm.DP_LLOYD:
        yield f"# The public interval of all features; rows outside are clipped to it.{_todo(given.domain)}"
        yield from _yaml({"dp_lloyd": {"domain": given.domain}})
    if given.algorithm == Algorithm.CENTRAL_TREE:
        yield f"# The public largest distance of a row from the origin; longer rows are shortened.{_todo(given.radius)}"
        yield from _yaml({"tree": {"radius": given.radius}})


def _todo(value: object) -> str:
    """Marks what is missing."""
    return " FILL IN." if value is None else ""


def _features(schema: pa.Schema, client_id: str | None) -> list[str] | str:
    """All columns of numbers, or the first column of lists of them."""
    numbers = [field.name for field in schema if field.name != client_id and is_numeric(field.type)]
    lists = [field.name for field in schema if _is_vector(field.type)]
    if not numbers and not lists:
        raise ConfigError("--data must have a column of numbers, or of lists of them, got none; name another table.")
    return numbers or lists[0]


def _is_vector(kind: pa.DataType) -> bool:
    """Whether a column holds lists of numbers."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and is_numeric(kind.value_type)


def _left_out(schema: pa.Schema, client_id: str | None) -> list[str]:
    """Comments on columns of text, which take a public vocabulary; names are quoted, whatever is in them."""
    texts = [field.name for field in schema if field.name != client_id and is_text(field.type)]
    if not texts:
        return []
    return [
        "# Columns of text become features by a public vocabulary, never listed from the private rows:",
        *(f"# encode: {{{json.dumps(name)}: {{kind: one_hot, vocabulary: [...]}}}}" for name in texts),
    ]


def _yaml(part: dict[str, Any]) -> Iterator[str]:
    """A part of a job, as lines."""
    for name, value in part.items():
        text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=100).removesuffix("...\n")
        first, *rest = text.splitlines()
        yield f"{name}: {first}"
        yield from (f"  {line}" for line in rest)


def _loaded(text: str) -> FitConfig | None:
    """The job; None while something is to be filled in."""
    try:
        return load_config(text)
    except ConfigError:
        if "FILL IN" in text.partition(_HEAD[-1])[2]:
            return None
        raise


def _schema(path: str) -> pa.Schema:
    """Names and types of the first file's columns; raises InputError if there is no file."""
    source = private_source(SimpleNamespace(data=DataConfig(path=path, features="any")))
    return first_schema(source)[1]
