"""Jobs that a stream writes: each fits one window of an epoch, whose windows share one charge."""

from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.recurring.config import RecurringConfig, Runs
from dapple_dp.schemas.privacy.ledger_place import is_on_server
from dapple_dp.schemas.settings.calendar import MOST_WINDOWS, Date, date_of, index_of
from dapple_dp.schemas.settings.section import Scalar, Section, Text

_COEFFICIENT_BITS = 4
"""Base-2 logarithm of the weight of a window's own statistic; finer weights gain less than one percent."""
_Count = Annotated[int, Field(strict=True, ge=1, le=MOST_WINDOWS), Scalar]


class EpochTerms(Section):
    """Calendar of windows that share one charge, and the number of windows in which a privacy unit takes part."""

    name: Text = Field(description="a name that no other epoch of the data set has, for the ledger")
    column: Text = Field(description="the Hive partition column whose folders are dates like dt=2026-01-31")
    first: Date = Field(description="the date of the first window")
    days: _Count = Field(default=1, description="from one window's date to that of the next, an integer >= 1")
    windows: _Count = Field(description="how many windows the epoch has, an integer from 1 to 10000")
    band: _Count = Field(
        default=16,
        description="how many windows each release adds up at most, so that their noise is correlated, an integer "
        ">= 1; 1 for independent noise; the partitions of this many windows must stay readable",
    )
    once: Text | None = Field(
        default=None,
        description="at privacy unit record: the reason why every row is in the folder of one date only and "
        "forever, in words; leave it out at unit client",
    )
    max_windows: _Count | None = Field(
        default=None,
        description="at privacy unit client: in how many windows of the epoch a client counts, an integer >= 1; rows "
        "of further ones are left out",
    )
    min_separation: _Count | None = Field(
        default=None,
        description="at privacy unit client: the number of windows from one in which a client counts to the next at "
        "least, an integer >= 1; 1 to count in successive ones",
    )

    @property
    def times(self) -> int:
        """Largest number of windows in which one unit counts."""
        return min(self.max_windows or 1, self._most_times)

    @property
    def binds(self) -> bool:
        """True if a unit could count in more windows without `max_windows`."""
        return self.times < self._most_times

    @property
    def _most_times(self) -> int:
        """Largest number of windows in which a unit can count, given the separation alone."""
        return -(-self.windows // self.separation)

    @property
    def separation(self) -> int:
        """Smallest distance between two windows in which a unit counts."""
        return self.min_separation or self.windows

    def date_of(self, index: int) -> str:
        """Returns the date of a window."""
        return date_of(self.first, self.days, index)


class EpochConfig(EpochTerms):
    """One window of an epoch; the date in a folder's name assigns its rows to the window."""

    window: Date = Field(description="the date of the window of this run")

    @property
    def index(self) -> int:
        """Number of the window of this run, from 0."""
        return index_of(self.first, self.days, self.window)

    def dates(self, reach: int) -> tuple[str, ...]:
        """Returns the dates of up to `reach` windows whose statistics this one releases, its own first."""
        return tuple(self.date_of(self.index - age) for age in range(min(reach, self.index + 1)))

    @pydantic.model_validator(mode="after")
    def _window_is_one_of_the_epoch(self) -> Self:
        if not 0 <= self.index < self.windows or self.date_of(self.index) != self.window:
            raise ConfigError(
                f"epoch.window must be one of the {self.windows} dates from {self.first} on, every {self.days} days, "
                f"got {self.window}; begin a new epoch, or correct the date."
            )
        return self

    def to_json(self) -> dict[str, Any]:
        """Returns its content in `privacy.json`, `run.json` and the ledger."""
        return self.model_dump(exclude_none=True) | {"index": self.index}


class SeriesConfig(RecurringConfig):
    """The previous window of a series, and the length of its memory."""

    memory: Runs = Field(description="how many windows the centers remember, an integer from 2 to 10000")


class WindowsFit(DPLloydFit):
    """One window of a stream: one Lloyd round on the box of dp_lloyd, over the rows of some dates."""

    algorithm: Literal["windows"] = Field(description="windows")  # type: ignore[assignment]
    epoch: EpochConfig = Field(description="a section with name, column, first, windows, window and once")
    recurring: SeriesConfig = Field(
        description="a section with memory and previous: the window before, or the fit that the first one starts from"
    )

    state: Text | None = Field(
        default=None,
        description="at privacy unit client: a folder on a local disk for the client lists of the windows, which are "
        "private; by default LEDGER.rolls beside the ledger's file; required if the ledger is on a server",
    )

    @property
    def weights(self) -> tuple[int, ...]:
        """Weights of the statistics in a release by age, the same in all windows; as many as a release adds up."""
        return coefficients(self.epoch.band, self.recurring.memory)

    @property
    def folders(self) -> tuple[str, tuple[str, ...]]:
        """The partition column of windows, and the dates whose rows a run reads, its own first."""
        return self.epoch.column, self.epoch.dates(len(self.weights))

    @property
    def covers(self) -> dict[str, Any]:
        """The shared terms of all windows of the epoch (calendar, weights, whole budget), and the window itself."""
        budget = {"epsilon": self.privacy.epsilon, "delta": self.privacy.delta, "weights": list(self.weights)}
        return self.epoch.to_json() | budget

    def at(self, index: int) -> Self:
        """Returns the job of another window of the epoch, except for `recurring`."""
        return self.model_copy(update={"epoch": self.epoch.model_copy(update={"window": self.epoch.date_of(index)})})

    def _check_algorithm(self) -> None:
        """Refuses settings that a window can't have; the guarantee of the epoch depends on every check."""
        super()._check_algorithm()
        data = self.data
        others = {
            "data.table": data.table,
            "data.max_rows_per_client": data.max_rows_per_client,
            "data.disjoint_partitions": data.disjoint_partitions,
            "server_data": self.server_data,
        }
        for setting, got in others.items():
            if got is not None:
                raise ConfigError(
                    f"{setting} isn't supported for algorithm windows; remove it, or use algorithm dp_lloyd."
                )
        if self.trust is Trust.MASKED:
            raise ConfigError(
                "trust must be central for algorithm windows, got 'masked'; a release adds up sums of several "
                "windows, and masked aggregation keeps none of them: leave trust out, or use algorithm dp_lloyd "
                "with recurring.memory."
            )
        if self.ledger is None:
            raise ConfigError(
                "ledger is required for algorithm windows, so that no window is released twice; give its path."
            )
        self._check_participation()
        self._check_state()
        if self.epoch.column in data.partitions:
            raise ConfigError(
                f"data.partitions must not hold {self.epoch.column}, which is epoch.column; leave it out."
            )

    def _check_state(self) -> None:
        """Refuses client lists without a local folder, and a folder without client lists."""
        by_client, on_server = self.privacy.unit is PrivacyUnit.CLIENT, is_on_server(str(self.ledger))
        if self.state is None and by_client and on_server:
            raise ConfigError(
                "state is required for privacy.unit client with a ledger on a server; give a folder on a local "
                "disk, which keeps the lists of clients from window to window."
            )
        if self.state is not None and (not by_client or "://" in self.state):
            raise ConfigError(
                "state must be a folder on a local disk, for privacy.unit client only, got {self.state!r}; correct "
                "it, or leave it out."
            )

    def _check_participation(self) -> None:
        """Refuses an epoch without the participation settings of its privacy unit, or with those of the other unit."""
        by_client = self.privacy.unit is PrivacyUnit.CLIENT
        wanted = {"once": not by_client, "max_windows": by_client, "min_separation": by_client}
        for name, is_wanted in wanted.items():
            if is_wanted is (getattr(self.epoch, name) is None):
                rule = "is required" if is_wanted else "isn't supported"
                raise ConfigError(
                    f"epoch.{name} {rule} for privacy.unit {self.privacy.unit}; records need once, which says why each "
                    "is in one window, and clients need max_windows and min_separation, which limit their windows."
                )


def coefficients(band: int, length: int) -> tuple[int, ...]:
    """Computes the weight of each age's statistic in the release of a window, its own first.

    Source: Fichtenberger, Henzinger, Upadhyay (2022), "Constant matters: Fine-grained complexity of differentially
    private continual observation", for the square root of the matrix of prefix sums; here with decay, rounded, banded.

    Args:
      band: number of windows that a release adds up, >= 1.
      length: length of the memory for which the noise is low, in windows, >= 2.

    Returns:
      Positive integers, descending, at most `band`; weights that round to zero are left out.

    Example:
      >>> coefficients(4, 30)
      (16, 8, 6, 5)
    """
    weights, factor, decay = [], 1.0, 1.0 - 1.0 / length
    for age in range(band):
        factor *= (2 * age - 1) / (2 * age) if age else 1.0
        weights.append(round(2**_COEFFICIENT_BITS * factor * decay**age))
    return tuple(weight for weight in weights if weight)
