"""Error messages for rejected configs, in one sentence: dotted name, rule, value, remedy."""

import difflib
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pydantic
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import tiers
from dapple_dp.schemas.settings.gone import GONE, GONE_VALUES

_RULES: Mapping[str, str] = {
    "bool_type": "true or false",
    "float_type": "a number",
    "int_type": "an integer",
    "string_type": "a string",
    "string_too_short": "a non-empty string",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a section of settings",
    "invalid_key": "a string",
}
_WORDS = (
    ("Input should be ", ""),
    ("must be ", ""),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
)
_LONGEST_VALUE = 60
Model = type[pydantic.BaseModel]
_Checked = TypeVar("_Checked", bound=pydantic.BaseModel)
Location = tuple[int | str, ...]


def broken_rule(rule: str, got: str | None = None) -> PydanticCustomError:
    """Builds the error that validators raise: the setting must be `rule`, got `got` (default: the given value)."""
    context = {"rule": rule} if got is None else {"rule": rule, "got": got}
    return PydanticCustomError("broken_rule", "must be {rule}", context)


def sentence(error: pydantic.ValidationError, model: Model, within: str = "") -> str:
    """Builds the message for the most helpful of the validation errors.

    Args:
      error: raised by `model`; an unknown key comes before all others, since a mistyped name also leaves
        the right one missing.
      model: config whose field descriptions are noun phrases that fit after "give".
      within: dotted name of the section that `model` is in a job; empty for the job itself.

    Returns:
      One sentence; the message of a validator's own ValueError is returned unchanged.
    """
    details, prefix = error.errors(include_url=False), f"{within}." if within else ""
    unknown = [detail["loc"] for detail in details if _is_unknown(detail, model)]
    if unknown:
        return prefix + _unknown_setting(unknown[0], model, prefix)
    first = details[0]
    if first["type"] == "value_error":
        return prefix + str(first["ctx"]["error"])
    name = _name(first["loc"])
    value = "a section" if isinstance(first["input"], Mapping) else str(first["input"])
    if (instead := GONE_VALUES.get((prefix + name, value))) is not None:
        return f"{prefix}{name} no longer accepts {value}; {instead}."
    fault = "is required" if first["type"] == "missing" else f"must be {_rule(first)}, got {_got(first)}"
    return f"{prefix}{name} {fault}; give {description(name, model)}."


def check_config(model: type[_Checked], settings: object, within: str = "") -> _Checked:
    """Validates plain data and returns a config.

    Args:
      model: class of the config.
      settings: plain data, as parsed from YAML or JSON.
      within: see `sentence`.

    Raises:
      ConfigError: one sentence about the most helpful of the errors.
    """
    try:
        result = model.model_validate(dict(settings) if isinstance(settings, Mapping) else settings)
    except pydantic.ValidationError as error:
        raise ConfigError(sentence(error, model, within)) from None
    check_tiers(result)
    return result


def check_tiers(settings: object) -> None:
    """Refuses a job that uses unsupported settings without `experimental: true`; sections alone pass."""
    tiers.check(settings, getattr(settings, "experimental", True))


_KINDS = {
    type(None): "nothing: the file is empty or holds only comments",
    list: "a list",
    str: "text without setting names",
}


def mapping(settings: object, start: str) -> dict[str, Any]:
    """Returns the settings of a job as a dict; `start` names the settings to begin with, for the error.

    Raises:
      ConfigError: if they aren't a mapping.
    """
    if not isinstance(settings, Mapping):
        got = _KINDS.get(type(settings), type(settings).__name__)
        raise ConfigError(f"the job must be a mapping of settings, got {got}; start with {start}.")
    return dict(settings)


def _is_unknown(details: ErrorDetails, model: Model) -> bool:
    misnamed = details["type"] == "invalid_key" and _section(details["loc"][:-1], model) is not None
    return misnamed or details["type"] == "extra_forbidden"


def _name(location: Location) -> str:
    return ".".join(str(part) for part in location if part != "[key]") or "the job"


def _rule(details: ErrorDetails) -> str:
    """Returns the words that complete "must be"."""
    rule = _RULES.get(details["type"], details["msg"])
    for words, shorter in _WORDS:
        rule = rule.replace(words, shorter)
    return rule


def _got(details: ErrorDetails) -> str:
    given = details.get("ctx", {}).get("got")
    if given is not None:
        return str(given)
    return quote(details["input"])


def quote(value: object) -> str:
    """Returns the text of a value for messages, at most 63 characters."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def description(name: str, model: Model) -> str:
    """Returns the description of the setting with this dotted name, or of the innermost section that has one."""
    location, found = tuple(name.split(".")), "a known setting"
    for depth, part in enumerate(location):
        section = _section(location[:depth], model)
        field = _settings(section).get(part) if section else None
        found = (field.description if field else None) or found
    return found


def _section(location: Location, model: Model) -> Model | None:
    for part in location:
        field = _settings(model).get(str(part))
        inner = _inner_model(field) if field else None
        if inner is None:
            return None
        model = inner
    return model


def _settings(model: Model) -> dict[str, FieldInfo]:
    """Returns the fields of a section by the names that jobs use."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _inner_model(field: FieldInfo) -> Model | None:
    for kind in (field.annotation, *typing.get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            return kind
    return None


def _dotted_names(model: Model, prefix: Location = ()) -> Iterator[Location]:
    """Yields the locations of all settings, sections included."""
    for name, field in _settings(model).items():
        yield (*prefix, name)
        inner = _inner_model(field)
        if inner is not None:
            yield from _dotted_names(inner, (*prefix, name))


def _unknown_setting(location: Location, model: Model, prefix: str) -> str:
    """Builds the message for an unknown key; looks for similar names in its section, then in the whole job."""
    *parents, key = location
    section = _section(tuple(parents), model)
    siblings = list(_settings(section)) if section else []
    if (gone := GONE.get(prefix + _name(location))) is not None:
        return f"{_name(location)} was removed; {gone.instead}."
    name = f"{_name(location)} is not a setting"
    for match in difflib.get_close_matches(str(key), siblings, n=1):
        return f"{name}; did you mean {_name((*parents, match))}?"
    elsewhere = {str(names[-1]): names for names in _dotted_names(model)}
    for match in difflib.get_close_matches(str(key), list(elsewhere), n=1, cutoff=0.8):
        return f"{name}; did you mean {_name(elsewhere[match])}?"
    return f"{name}; the settings are {', '.join(siblings)}."
