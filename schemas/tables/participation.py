"""Which clients count in the windows of an epoch: what a job knows of the private file that says so."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """The contract of an epoch at client level, and where workers find who counts; enforced wherever rows are read.

    Attributes:
      column: Hive partition column whose folders are the windows.
      dates: of the windows that are read, by age.
      index: number of the window of age 0.
      max_windows: in how many windows a client counts at most.
      min_separation: the number of windows from one of these to the next at least.
      path: of the file; private, as the rows are.
      digest: SHA-256 of that file, 64 hex digits; empty before it is written.
    """

    column: str
    dates: tuple[str, ...]
    index: int
    max_windows: int
    min_separation: int
    path: str
    digest: str = ""
