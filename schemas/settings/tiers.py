"""Detection of unsupported settings in a job, which are refused unless it sets `experimental`.

The tier of a value is in its enumeration (`dapple_dp.schemas.choices.Choice`), that of a setting in its field.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pydantic
from pydantic.fields import FieldInfo

from dapple_dp.schemas.choices import TIER_KEY, Choice, Runner, Tier
from dapple_dp.schemas.errors import ConfigError

INSTEAD_KEY = "x-instead"
"""JSON Schema key: the replacement of a deprecated setting."""
PAPER_ONLY: dict[str, Any] = {TIER_KEY: str(Tier.PAPER_ONLY)}
"""Marks a field as paper only: `json_schema_extra=PAPER_ONLY`."""


def deprecated(instead: str) -> dict[str, Any]:
    """Marks a field as deprecated, to be removed in the version after the next; `instead` is the replacement."""
    return {"deprecated": True, INSTEAD_KEY: instead}


class Found(NamedTuple):
    """An unsupported part of a job.

    Attributes:
      name: dotted name of the setting, with its value if only the value is unsupported.
      tier: its tier.
    """

    name: str
    tier: Tier


def tier_of(field: FieldInfo) -> Tier:
    """Returns the tier of a setting, regardless of its value."""
    more = field.json_schema_extra
    return Tier(str(more[TIER_KEY])) if isinstance(more, Mapping) and TIER_KEY in more else Tier.SUPPORTED


def unsupported(settings: Any, within: str = "") -> Iterator[Found]:
    """Yields the unsupported parts of a job; settings with default values are skipped.

    Args:
      settings: a section, or any value of a setting.
      within: its dotted name; empty for the job itself.
    """
    if isinstance(settings, Choice) and settings.tier is not Tier.SUPPORTED:
        yield Found(f"{within}: {settings}", settings.tier)
    elif isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from unsupported(value, f"{within}.{key}")
    elif isinstance(settings, pydantic.BaseModel):
        for name, field in type(settings).model_fields.items():
            dotted, value = f"{within}.{field.alias or name}".lstrip("."), getattr(settings, name)
            if value == field.get_default(call_default_factory=True, validated_data={}):
                continue
            tier = tier_of(field)
            yield from [Found(dotted, tier)] if tier is not Tier.SUPPORTED else unsupported(value, dotted)


def deprecations(settings: Any, within: str = "") -> Iterator[str]:
    """Yields a warning for each deprecated setting that a job sets, at any depth.

    Args:
      settings: see `unsupported`.
      within: see `unsupported`.
    """
    if not isinstance(settings, pydantic.BaseModel):
        return
    for name, field in type(settings).model_fields.items():
        dotted, more = f"{within}.{field.alias or name}".lstrip("."), field.json_schema_extra
        if isinstance(more, Mapping) and INSTEAD_KEY in more and name in settings.model_fields_set:
            yield f"{dotted} will be removed in the next version: {more[INSTEAD_KEY]}"
        yield from deprecations(getattr(settings, name), dotted)


def check(settings: Any, allowed: bool) -> None:
    """Refuses unsupported settings, unless the job allows them.

    Args:
      settings: validated settings of the job.
      allowed: `experimental` of the job.

    Raises:
      ConfigError: naming the first one.
    """
    first = None if allowed else next(unsupported(settings), None)
    if first is not None:
        raise _refusal(*first)


def check_runner(name: str | None, allowed: bool) -> None:
    """Refuses an untested runner, unless the job allows it.

    Args:
      name: name of the runner in any case, or the path of a class; None for the default.
      allowed: `experimental` of the job.

    Raises:
      ConfigError: naming the runner.
    """
    short = str(name or Runner.FN_API).rpartition(".")[2]
    tier = next((runner.tier for runner in Runner if runner.lower() == short.lower()), Tier.EXPERIMENTAL)
    if tier is not Tier.SUPPORTED and not allowed:
        raise _refusal(f"--runner={short}", tier)


def _refusal(name: str, tier: Tier) -> ConfigError:
    return ConfigError(
        f"{name} is {tier}; write experimental: true into the job to use it, or choose what is supported."
    )
