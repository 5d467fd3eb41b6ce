"""Reference to the private list of clients that count in the windows of an epoch."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """Participation rules of an epoch with unit client, and the place of the client list; readers of rows enforce it.

    Attributes:
      column: Hive partition column whose folders are the windows.
      dates: dates of the windows that are read, by age.
      index: index of the window of age 0.
      max_windows: largest number of windows in which a client counts.
      min_separation: smallest distance between two of these windows.
      path: path of the client list; as private as the rows.
      digest: SHA-256 of the client list, 64 hex digits; empty before it is written.
    """

    column: str
    dates: tuple[str, ...]
    index: int
    max_windows: int
    min_separation: int
    path: str
    digest: str = ""
