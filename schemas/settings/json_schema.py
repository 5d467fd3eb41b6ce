"""Models of JSON files, and the functions that parse and validate text by them."""

import dataclasses
import functools
import json
from typing import Annotated, Any, TypeVar, cast

import pydantic

from dapple_dp.schemas.settings import json_text
from dapple_dp.schemas.settings.format_number import FORMAT, NAME, check_number
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal

_Content = TypeVar("_Content")
_LONGEST_NAME = 80
_EXACT = pydantic.ConfigDict(strict=True, allow_inf_nan=False)
FILE_CONTENT = pydantic.ConfigDict(**_EXACT, extra="forbid")
"""Config for dataclasses that are stored in files as they are: exact types, finite numbers, no other keys."""


FormatNumber = Annotated[int, pydantic.Field(ge=FORMAT, le=FORMAT)]


class FileContent(pydantic.BaseModel):
    """Base of file models: exact types, finite numbers, no other keys."""

    model_config = pydantic.ConfigDict(**FILE_CONTENT, frozen=True, defer_build=True)


class OpenContent(FileContent):
    """Base of models for the part of a file that is used; other keys are for people, and ignored."""

    model_config = pydantic.ConfigDict(extra="ignore")


class NumberedFile(FileContent):
    """Base of models for a file with a format number."""

    format: FormatNumber


class NumberedContent(OpenContent):
    """Base of models for the used part of a file with a format number."""

    format: FormatNumber


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    has_config = dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel))
    return pydantic.TypeAdapter(kind) if has_config else pydantic.TypeAdapter(kind, config=_EXACT)


def check_content(content: object, kind: type[_Content]) -> _Content:
    """Validates plain data and returns a model.

    Args:
      content: data in the types of JSON.
      kind: a model, or another type that pydantic can check.

    Raises:
      MalformedError: naming the first wrong place, but not its value.
    """
    return _validated(json.dumps(content), kind)


def _validated(text: bytes | str, kind: type[_Content]) -> _Content:
    try:
        result: _Content = _adapter(cast(Any, kind)).validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        if place == NAME:
            found_number = None if first["type"] == "missing" else first["input"]
            check_number(found_number, getattr(kind, "format_number", FORMAT))
        raise MalformedError(
            f"unexpected content at {place[:_LONGEST_NAME]!r}" if place else "another content"
        ) from error
    return result


def parse_as(
    text: bytes | str,
    kind: type[_Content],
    refusal: Refusal,
    most_bytes: int = json_text.MOST_BYTES,
) -> _Content:
    """Parses and validates JSON text.

    Args:
      text: UTF-8.
      kind: a model, or another type that pydantic can check.
      refusal: builds the error for malformed text.
      most_bytes: maximum size of the text.
    """
    with refusal.covers():
        json_text.parse(text, most_bytes)
        return _validated(text, kind)
