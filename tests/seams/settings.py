"""Settings of the schemas of jobs, as `section.setting`, by which a table of factors is found to be complete."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dapple_dp.pipelines.command.job_schema import job_schema
from tests.seams.array import Factor


def settings_of(job: str) -> set[str]:
    """All settings of a job that hold a value; of a mapping by names that users choose, the mapping itself."""
    schema = job_schema(job)
    return set(_leaves(schema, schema.get("$defs", {}), ""))


def _leaves(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | {k: v for k, v in schema.items() if k != "$ref"}
    choices = [each for name in ("anyOf", "oneOf") for each in schema.get(name, ())]
    inner = [(name, each) for name, each in schema.get("properties", {}).items()]
    if not choices and not inner:
        yield from [path] if schema.get("type") != "null" else []
    for each in choices:
        yield from _leaves(each, definitions, path)
    for name, each in inner:
        yield from _leaves(each, definitions, f"{path}.{name}".lstrip("."))


def unknown_settings(job: str, factors: Sequence[Factor], unvaried: Mapping[str, str]) -> set[str]:
    """Settings of a job that no factor varies, and for which no reason is given.

    Args:
      job: whose schema has them.
      factors: of its table.
      unvaried: a reason for each setting, or section of settings, that no factor varies.
    """
    known = {path for each in factors for path in each.covers} | set(unvaried)
    return {path for path in settings_of(job) if not any(_is_part(path, each) for each in known)}


def _is_part(path: str, known: str) -> bool:
    """Returns whether a setting is in a known section, or a section that one class has no settings in."""
    return path == known or path.startswith(f"{known}.") or known.startswith(f"{path}.")
