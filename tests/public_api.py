"""The public interface in one file: names of the Python module, commands and flags, codes, formats, settings.

    python -m tests.public_api            what differs from the file; code 1 if something does
    python -m tests.public_api --write    rewrites it

The page `docs/reference/stability.md` says what may change, and when.
"""

import argparse
import difflib
import hashlib
import inspect
import json
import pathlib
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import click
import pyarrow as pa
import pydantic

import dapple_dp
from dapple_dp.pipelines.command.help_pages import EXIT_CODES
from dapple_dp.pipelines.command.job_schema import job_schema
from dapple_dp.pipelines.command.job_schema import text_of as schema_text
from dapple_dp.pipelines.command.main import overview
from dapple_dp.pipelines.command.signal_flags import EXPORT_FLAG, FLAGS
from dapple_dp.pipelines.command.words import WORDS
from dapple_dp.schemas import errors
from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_SCHEMA
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA
from dapple_dp.schemas.profile.plan import PROFILE_SCHEMA
from dapple_dp.schemas.reports.parameters import FORMAT_VERSION
from dapple_dp.schemas.settings.format_number import FORMAT
from dapple_dp.schemas.trusted_zone.sweep_results import POINT_SCHEMA, SCORED_CELL_SCHEMA

ROOT = pathlib.Path(__file__).resolve().parents[1]
REGISTER = ROOT / "docs" / "reference" / "public-api.json"
_TABLES: Mapping[str, pa.Schema] = {
    "memory.parquet": MEMORY_SCHEMA,
    "profile.parquet": PROFILE_SCHEMA,
    "releases.parquet": RELEASE_SCHEMA,
    "results.parquet": SCORED_CELL_SCHEMA,
    "summary.parquet": POINT_SCHEMA,
}


def public_api() -> dict[str, Any]:
    """Everything that is public, by kind, in an order that follows from it alone."""
    return {
        "python": {name: _python(getattr(dapple_dp, name)) for name in dapple_dp.__all__},
        "commands": dict(_commands(overview(), "dapple")) | {"any command": sorted([*FLAGS, EXPORT_FLAG])},
        "exit codes": {str(code): names for code, names in sorted(_exit_codes().items())},
        "formats": {"files": FORMAT, "parameters of reports": FORMAT_VERSION},
        "tables": {name: {each.name: str(each.type) for each in schema} for name, schema in _TABLES.items()},
        "settings": _settings(),
        "schemas": {name: _digest(job_schema(name)) for name in sorted(WORDS)},
    }


def text_of(found: Mapping[str, Any]) -> str:
    """The register as it is written."""
    return json.dumps(found, indent=1) + "\n"


def _python(public: Any) -> Any:
    """Parameters of a function; of a class its own, and those of its public methods. Settings have their own kind."""
    if members := typing.get_args(public):
        return [each.__name__ for each in members]
    if not inspect.isclass(public):
        return _parameters(public)
    if issubclass(public, BaseException):
        return [each.__name__ for each in public.__mro__[1:-1]]
    own = {name: getattr(public, name) for base in public.__mro__ if _is_ours(base) for name in vars(base)}
    methods = {name: _parameters(each) for name, each in sorted(own.items()) if name[0] != "_" and callable(each)}
    parameters = list(public.model_fields) if issubclass(public, pydantic.BaseModel) else _parameters(public)
    return {"parameters": parameters, "methods": methods}


def _is_ours(base: type) -> bool:
    return base.__module__.partition(".")[0] == "dapple_dp"


def _parameters(called: Any) -> list[str]:
    """Names with their defaults; no types, which may become wider."""
    given = inspect.signature(called).parameters.values()
    return [str(each.replace(annotation=inspect.Parameter.empty)) for each in given if each.name != "self"]


def _commands(command: click.Command, form: str) -> Iterator[tuple[str, list[str]]]:
    """Each word with its flags, and the words below it."""
    yield form, sorted(param.opts[0] for param in command.params)
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(each, f"{form} {name}")


def _exit_codes() -> dict[int, list[str]]:
    """Names of the errors that end in a code; no error ends in 0, or in that of an interruption."""
    found: dict[int, list[str]] = {code: [] for code in EXIT_CODES}
    for name, each in inspect.getmembers(errors, inspect.isclass):
        if issubclass(each, errors.DappleError):
            found[each.exit_code].append(name)
    return found


def _settings() -> dict[str, dict[str, Any]]:
    """Defaults of the settings of all jobs, by section; a setting without one must be given."""
    found: dict[str, dict[str, Any]] = {}
    for word in sorted(WORDS):
        for name, section in json.loads(schema_text(job_schema(word)))["$defs"].items():
            values = {key: each.get("default", "no default") for key, each in section.get("properties", {}).items()}
            found.setdefault(name, {}).update(values if values else {"one of": section.get("enum", [])})
    return {name: dict(sorted(each.items())) for name, each in sorted(found.items())}


def _digest(schema: Mapping[str, Any]) -> str:
    """Digest of a schema as `dapple tools schema` prints it, descriptions included."""
    return hashlib.sha256(schema_text(schema).encode()).hexdigest()[:16]


def main() -> int:
    """Writes the register, or says what differs from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    found = text_of(public_api())
    if parser.parse_args().write:
        REGISTER.write_text(found)
    lines = list(difflib.unified_diff(REGISTER.read_text().splitlines(), found.splitlines(), "registered", "found"))
    sys.stdout.writelines(f"{each}\n" for each in lines)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
