"""How a file that is not what it should be is refused: in one sentence, whatever its parser stumbled over.

Standard library only, so that a device can use it.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

from dapple_dp.schemas.errors import DappleError


class MalformedError(ValueError):
    """A fault of a file, in a few words that hold none of its values."""


class OtherFormatError(MalformedError):
    """A file is of another format, or says of none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusal of a file that cannot be used.

    Attributes:
      kind: class of the error.
      rule: names the file and says what it must be.
      remedy: what the user can do.
    """

    kind: type[DappleError]
    rule: str
    remedy: str

    def because(self, fault: str = "") -> DappleError:
        """The error.

        Args:
          fault: what the file is instead, as a noun phrase that holds none of its values; empty if that is plain.
        """
        got = f", got {fault}" if fault else ""
        return self.kind(f"{self.rule}{got}; {self.remedy}.")

    @contextlib.contextmanager
    def covers(self) -> Iterator[None]:
        """Turns whatever a parser raises into the error; an error that has its sentence already passes."""
        try:
            yield
        except DappleError:
            raise
        except OtherFormatError as error:
            remedy = f"read it with the version of dapple that wrote it, or {self.remedy}"
            raise self.kind(f"{error}, where {self.rule}; {remedy}.") from error
        except MalformedError as error:
            raise self.because(str(error)) from error
        except Exception as error:
            raise self.because("something else") from error
