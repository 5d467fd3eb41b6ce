"""Identification of a page's run: id, date, data and job, on the screen and on every printed page."""

import dataclasses
import datetime
import re


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunStamp:
    """Identifies the run of a page; independent of private rows.

    Attributes:
      run_id: id of the run; "" without one.
      day: date of the page in UTC, without the time, which would reveal how long private rows took.
      data: name of the data set; "" without one.
      job: digest of the job's settings.
    """

    run_id: str
    day: str
    data: str
    job: str

    @classmethod
    def today(cls, run_id: str, job: str, data: str | None) -> "RunStamp":
        """The stamp of a run that ends now; a sweep has no run id, since it may be interrupted."""
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        return cls(run_id=run_id, day=day, data=data or "", job=job)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names and values."""
        pairs = ("Run", self.run_id), ("Date", f"{self.day} (UTC)"), ("Data", self.data), ("Job digest", self.job)
        return tuple(pair for pair in pairs if pair[1])

    @property
    def line(self) -> str:
        """Text for the header of a printed page."""
        run = f"run {self.run_id}" if self.run_id else f"job {self.job[:12]}"
        return " · ".join(each for each in (run, self.day, self.data) if each)


def css_string(text: str) -> str:
    """Formats any text as a CSS string; escapes everything but ASCII letters, digits and blanks."""
    return '"' + re.sub(r"[^A-Za-z0-9 ]", lambda match: f"\\{ord(match.group()):06x} ", text) + '"'
