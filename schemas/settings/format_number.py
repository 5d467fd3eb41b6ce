"""The format number: stored in every file that outlives a run; files with another number are refused.

Uses only the standard library, so that devices can import it.
"""

from collections.abc import Mapping
from typing import Any

from dapple_dp.schemas.settings.refusal import OtherFormatError

FORMAT = 1
NAME = "format"
METADATA = f"dapple.{NAME}".encode()
"""Key of the number in the metadata of a Parquet file."""


def with_number(content: Mapping[str, Any], format_number: int = FORMAT) -> dict[str, Any]:
    """Returns the content of a file with its format number.

    Args:
      content: plain data, arrays or metadata, by name.
      format_number: number of the file's format.
    """
    return {NAME: format_number, **content}


def check_number(found: object, expected: int = FORMAT) -> None:
    """Refuses a file with another format number.

    Args:
      found: number in the file, or its digits in metadata; None if there is none.
      expected: the format number to accept.

    Raises:
      OtherFormatError: unless it is `expected`.
    """
    number = int(found) if isinstance(found, bytes) and found.isdigit() and len(found) < 10 else found
    if type(number) is not int or number != expected:
        got = f"format {number}" if type(number) is int else "no format number"
        raise OtherFormatError(f"{got} instead of format {expected}")
