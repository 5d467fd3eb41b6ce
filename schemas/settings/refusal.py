"""Errors for files that can't be used: one sentence, for any exception of the parser.

Uses only the standard library, so that devices can import it.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

from dapple_dp.schemas.errors import DappleError


class MalformedError(ValueError):
    """A file is malformed; the message is a few words without any of its values."""


class OtherFormatError(MalformedError):
    """A file has another format number, or none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Template of the error for a file that can't be used.

    Attributes:
      kind: class of the error.
      rule: names the file and states what it must be.
      remedy: action for the user.
    """

    kind: type[DappleError]
    rule: str
    remedy: str

    def because(self, fault: str = "") -> DappleError:
        """Builds the error.

        Args:
          fault: noun phrase that says what is wrong, without values of the file; empty if `rule` is enough.
        """
        got = f", got {fault}" if fault else ""
        return self.kind(f"{self.rule}{got}; {self.remedy}.")

    @contextlib.contextmanager
    def covers(self) -> Iterator[None]:
        """Converts any exception of a parser into the error; a DappleError passes unchanged."""
        try:
            yield
        except DappleError:
            raise
        except OtherFormatError as error:
            remedy = f"read it with the version of dapple that wrote it, or {self.remedy}"
            raise dataclasses.replace(self, remedy=remedy).because(str(error)) from error
        except MalformedError as error:
            raise self.because(str(error)) from error
        except Exception as error:
            raise self.because("something else") from error
