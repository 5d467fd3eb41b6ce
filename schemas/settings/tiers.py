"""What of a job is not supported, and the word without which it is refused.

A value says its tier beside its name (`dapple_dp.schemas.choices.Choice`), a setting in its field, by `PAPER_ONLY`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pydantic
from pydantic.fields import FieldInfo

from dapple_dp.schemas.choices import TIER_KEY, Choice, Runner, Tier
from dapple_dp.schemas.errors import ConfigError

INSTEAD_KEY = "x-instead"
"""In a JSON Schema: what to do without a setting that is deprecated."""
PAPER_ONLY: dict[str, Any] = {TIER_KEY: str(Tier.PAPER_ONLY)}
"""Of a field: `json_schema_extra=PAPER_ONLY`."""


def deprecated(instead: str) -> dict[str, Any]:
    """Of a field that goes in the version after the next: `json_schema_extra=leaving("use lloyd.steps")`."""
    return {"deprecated": True, INSTEAD_KEY: instead}


class Found(NamedTuple):
    """A part of a job that is not supported.

    Attributes:
      name: dotted name of the setting, with its value where the value is what is not supported.
      tier: of it.
    """

    name: str
    tier: Tier


def tier_of(field: FieldInfo) -> Tier:
    """The tier of a setting, whatever its value."""
    more = field.json_schema_extra
    return Tier(str(more[TIER_KEY])) if isinstance(more, Mapping) and TIER_KEY in more else Tier.SUPPORTED


def unsupported(settings: Any, within: str = "") -> Iterator[Found]:
    """What a job asks for that is not supported; settings that have their defaults are no matter.

    Args:
      settings: a section, or anything that a setting may hold.
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
    """A warning for each deprecated setting that a job names, wherever it is.

    Args:
      settings: as of `unsupported`.
      within: likewise.
    """
    if not isinstance(settings, pydantic.BaseModel):
        return
    for name, field in type(settings).model_fields.items():
        dotted, more = f"{within}.{field.alias or name}".lstrip("."), field.json_schema_extra
        if isinstance(more, Mapping) and INSTEAD_KEY in more and name in settings.model_fields_set:
            yield f"{dotted} goes in the next version: {more[INSTEAD_KEY]}"
        yield from deprecations(getattr(settings, name), dotted)


def check(settings: Any, allowed: bool) -> None:
    """Refuses what is not supported, unless the job says that it may be there.

    Args:
      settings: of the job, checked.
      allowed: what the job says by `experimental`.

    Raises:
      ConfigError: naming the first of it.
    """
    found = None if allowed else next(unsupported(settings), None)
    if found is not None:
        raise _refusal(*found)


def check_runner(name: str | None, allowed: bool) -> None:
    """Refuses a runner on which nobody has run jobs, unless the job says that it may be there.

    Args:
      name: as Beam reads it, in letters of any case, or the path of a class; None for the default.
      allowed: as above.

    Raises:
      ConfigError: naming the runner.
    """
    short = str(name or Runner.FN_API).rpartition(".")[2]
    tier = next((each.tier for each in Runner if each.lower() == short.lower()), Tier.EXPERIMENTAL)
    if tier is not Tier.SUPPORTED and not allowed:
        raise _refusal(f"--runner={short}", tier)


def _refusal(name: str, tier: Tier) -> ConfigError:
    return ConfigError(
        f"experimental must be true for {name}, which is {tier}, got false; write experimental: true into the job, or "
        "use what is supported."
    )
