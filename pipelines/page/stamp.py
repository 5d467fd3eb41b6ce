"""Which run a page is of: its id, its day, its data and its job, on the screen and on every printed page."""

import dataclasses
import datetime
import re


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunStamp:
    """What distinguishes a page from that of another run; nothing of it depends on private rows.

    Attributes:
      run_id: of the run; "" without one.
      day: on which the page was written, in UTC; no time of day, which reveals how long private rows took.
      data: name of the data set; "" without one.
      job: digest of the job's settings.
    """

    run_id: str
    day: str
    data: str
    job: str

    @classmethod
    def today(cls, run_id: str, job: str, data: str | None) -> "RunStamp":
        """The stamp of a run that ends now; a sweep, which may be interrupted, has no run id."""
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        return cls(run_id=run_id, day=day, data=data or "", job=job)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names and values."""
        pairs = ("Run", self.run_id), ("Date", f"{self.day} (UTC)"), ("Data", self.data), ("Job digest", self.job)
        return tuple(pair for pair in pairs if pair[1])

    @property
    def line(self) -> str:
        """For the head of a printed page."""
        run = f"run {self.run_id}" if self.run_id else f"job {self.job[:12]}"
        return " · ".join(each for each in (run, self.day, self.data) if each)


def css_string(text: str) -> str:
    """A string of a style sheet, whatever the text: everything but letters, digits and blanks of ASCII is escaped."""
    return '"' + re.sub(r"[^A-Za-z0-9 ]", lambda match: f"\\{ord(match.group()):06x} ", text) + '"'
