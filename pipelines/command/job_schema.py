"""JSON Schemas of the job settings, for editors and other programs; `dapple tools schema JOB` prints them."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pydantic

from dapple_dp.pipelines.command.words import WORDS, Word, import_name
from dapple_dp.schemas.choices import TIER_KEY, TIERS_KEY, Algorithm
from dapple_dp.schemas.kmeans.fit_config import FITS, OWN_SECTIONS
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.tree_config import CentralTreeFit

_BOUND_BY_THEMSELVES = [kind for kind in FITS.values() if kind.has_domain or kind is CentralTreeFit]
"""Jobs whose own section bounds the rows, so they need no clipping."""
_NO_CLIPPING = "bounds on rows beside those of the algorithm's own section; may be left out"
_AUTO = "AutoFit"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema(name: str) -> dict[str, Any]:
    """Returns the JSON Schema of a job's settings.

    The schema accepts everything that the job accepts. It may accept more, since it has no rules across settings.
    """
    word = WORDS[name]
    head: dict[str, Any] = {"$schema": _DIALECT, "title": f"Settings of dapple {name}", "description": f"{word.line}."}
    head |= {TIER_KEY: str(word.tier), "x-runners": {str(runner): str(runner.tier) for runner in word.runners}}
    return head | (_section(word) if word.section else _alternatives(word))


def _alternatives(word: Word) -> dict[str, Any]:
    """Schema of a job whose settings have one of several types."""
    kinds: tuple[Any, ...] = tuple(import_name(path) for path in word.models)
    union: Any = kinds[0]
    for each in kinds[1:]:
        union = union | each
    result = pydantic.TypeAdapter(union).json_schema()
    _write_as_fits_are(result.get("$defs", {}))
    if {kind.__name__ for kind in _BOUND_BY_THEMSELVES} <= result.get("$defs", {}).keys():
        result["$defs"][_AUTO] = _auto(result["$defs"])
        result["anyOf"].append({"$ref": f"#/$defs/{_AUTO}"})
    for kind, more in word.more.items():
        result.get("$defs", {}).get(kind, result)["properties"] |= more
    return result


def _write_as_fits_are(kinds: dict[str, Any]) -> None:
    """Adds the parts of `fit` settings that aren't fields of their type; see `fit_config.validated`."""
    for kind in {kind.__name__ for kind in FITS.values()} & kinds.keys():
        choice = kinds[kind]["properties"]["algorithm"]
        own = {word: tier for word, tier in Algorithm.tiers().items() if word in str(choice)}
        choice |= {TIERS_KEY: own} if own else {}
        for name in OWN_SECTIONS:
            kinds[kind]["properties"].setdefault(name, {"type": "null"})
    for kind in {kind.__name__ for kind in _BOUND_BY_THEMSELVES} & kinds.keys():
        kinds[kind]["required"].remove("clipping")
        kinds[kind]["properties"]["clipping"] = {"type": "object", "description": _NO_CLIPPING}


def _auto(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Schema of a job with `algorithm: auto`: has the sections of all algorithms, all optional."""
    found = copy.deepcopy(kinds[DPLloydFit.__name__])
    for name, owner in OWN_SECTIONS.items():
        section = kinds[FITS[owner].__name__]["properties"][name]
        found["properties"][name] = {"type": ["object", "null"], "description": section["description"]}
        found["required"] = [each for each in found["required"] if each != name]
    found["properties"]["algorithm"] = {"const": str(Algorithm.AUTO), "type": "string"}
    return found | {"title": _AUTO, "description": "One `fit` job of the algorithm that follows from what is public."}


def _section(word: Word) -> dict[str, Any]:
    """Schema of a job that adds a section to the settings of another one."""
    inner = pydantic.TypeAdapter(import_name(word.models[0])).json_schema(ref_template="#/$defs/{model}")
    definitions = inner.pop("$defs", {})
    found = {"type": "object", "properties": {word.section: inner}, "required": [word.section]}
    return found | ({"$defs": definitions} if definitions else {})


def text_of(schema: Mapping[str, Any]) -> str:
    """Formats a schema as the text of a file."""
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
