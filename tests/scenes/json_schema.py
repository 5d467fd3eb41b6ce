"""Checks plain data against a JSON Schema, as far as the schemas of jobs use the language."""

import json
import re
from typing import Any

from dapple_dp.schemas.settings import yaml_text

_KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
_NOTES = {"$schema", "$defs", "title", "description", "default", "additionalProperties", "items", "discriminator"}
_NOTES |= {"x-runners", "x-tier", "x-tiers"}


def plain(text: str) -> Any:
    """Returns what a job holds, as JSON."""
    return json.loads(json.dumps(yaml_text.parse(text)))


def accepts(schema: dict[str, Any], value: Any) -> bool:
    return _accepts(schema, value, schema.get("$defs", {}))


def _accepts(schema: dict[str, Any] | bool, value: Any, definitions: dict[str, Any]) -> bool:
    if isinstance(schema, bool):
        return schema
    unknown = schema.keys() - _RULES.keys() - _NOTES
    assert not unknown, f"the checker knows no {unknown}"
    return all(rule(schema, value, definitions) for name, rule in _RULES.items() if name in schema)


def _is(schema, value, definitions):
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return any(_of_kind(each, value) for each in kinds) and _inside(schema, value, definitions)


def _of_kind(kind, value):
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, int | float) if kind == "number" else isinstance(value, _KINDS[kind])


def _inside(schema, value, definitions):
    if isinstance(value, list):
        return all(_accepts(schema.get("items", True), each, definitions) for each in value)
    if not isinstance(value, dict):
        return True
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(_accepts(known.get(name, others), each, definitions) for name, each in value.items())


def _of_sequence(schema, value, definitions):
    return all(_accepts(rule, each, definitions) for rule, each in zip(schema["prefixItems"], value, strict=False))


_RULES = {
    "type": _is,
    "properties": lambda schema, value, definitions: True,  # with the type
    "required": lambda schema, value, definitions: set(schema["required"]) <= value.keys(),
    "anyOf": lambda schema, value, definitions: any(_accepts(each, value, definitions) for each in schema["anyOf"]),
    "oneOf": lambda schema, value, definitions: (
        sum(_accepts(each, value, definitions) for each in schema["oneOf"]) == 1
    ),
    "enum": lambda schema, value, definitions: value in schema["enum"],
    "const": lambda schema, value, definitions: value == schema["const"],
    "$ref": lambda schema, value, definitions: _accepts(
        definitions[schema["$ref"].removeprefix("#/$defs/")], value, definitions
    ),
    "prefixItems": _of_sequence,
    "minProperties": lambda schema, value, definitions: len(value) >= schema["minProperties"],
    "minItems": lambda schema, value, definitions: len(value) >= schema["minItems"],
    "maxItems": lambda schema, value, definitions: len(value) <= schema["maxItems"],
    "minLength": lambda schema, value, definitions: len(value) >= schema["minLength"],
    "pattern": lambda schema, value, definitions: re.search(schema["pattern"], value) is not None,
    "minimum": lambda schema, value, definitions: value >= schema["minimum"],
    "maximum": lambda schema, value, definitions: value <= schema["maximum"],
    "exclusiveMinimum": lambda schema, value, definitions: value > schema["exclusiveMinimum"],
    "exclusiveMaximum": lambda schema, value, definitions: value < schema["exclusiveMaximum"],
    "propertyNames": lambda schema, value, definitions: all(
        _accepts(schema["propertyNames"], each, definitions) for each in value
    ),
}
