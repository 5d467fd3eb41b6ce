"""Jobs of algorithm windows: each is one window of an epoch, whose windows share one charge."""

from typing import Any, Literal, Self

from pydantic import Field

from schemas.choices import Algorithm, LloydVariant, Trust
from schemas.errors import ConfigError
from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.kmeans.recurring.config import RecurringConfig
from schemas.kmeans.recurring.epoch import EpochConfig, coefficients
from schemas.privacy.plan import PrivacyUnit


class WindowsFit(DPLloydFit):
    """One `fit` job of algorithm windows: a Lloyd round on the box of dp_lloyd, by the rows of some dates."""

    algorithm: Literal[Algorithm.WINDOWS] = Field(description="windows")  # type: ignore[assignment]
    epoch: EpochConfig = Field(description="a section with name, column, first, windows, window and once")
    recurring: RecurringConfig = Field(
        description="a section with memory and previous: the window before, or the fit that the first one starts from"
    )

    @property
    def memory(self) -> int:
        """How many windows the centers remember."""
        return self.recurring.memory or 1

    @property
    def weights(self) -> tuple[int, ...]:
        """Weight of the statistic of each age in a release, the same in all windows; a release adds up as many."""
        return coefficients(self.epoch.band, self.memory)

    @property
    def folders(self) -> tuple[str, tuple[str, ...]]:
        """The partition column of windows, and the dates of those whose rows a run reads, its own first."""
        return self.epoch.column, self.epoch.dates(len(self.weights))

    @property
    def covers(self) -> dict[str, Any]:
        """All windows of the epoch together: the calendar, the weights and the whole budget; with the window itself."""
        budget = {"epsilon": self.privacy.epsilon, "delta": self.privacy.delta, "weights": list(self.weights)}
        return self.epoch.to_json() | budget

    def at(self, index: int) -> Self:
        """The job of another window of the epoch, but for what it follows."""
        return self.model_copy(update={"epoch": self.epoch.model_copy(update={"window": self.epoch.date_of(index)})})

    def _check_algorithm(self) -> None:
        """Refuses what a window cannot have; the promise of the epoch rests on each of these."""
        super()._check_algorithm()
        data = self.data
        wanted = (
            ("dp_lloyd.variant", LloydVariant.FAST, self.dp_lloyd.variant),
            ("data.table", None, data.table),
            ("data.max_rows_per_client", None, data.max_rows_per_client),
            ("data.disjoint_partitions", None, data.disjoint_partitions),
            ("server_data", None, self.server_data),
        )
        for setting, value, got in wanted:
            if got != value:
                rule = "be left out" if value is None else f"be {value}"
                raise ConfigError(
                    f"{setting} must {rule} for algorithm windows, got another; change it, or use algorithm dp_lloyd."
                )
        if self.trust is Trust.MASKED:
            raise ConfigError(
                "trust must be central for algorithm windows, got 'masked'; a release adds up sums of several windows, "
                "and under masks nobody may keep them: leave trust out, or use algorithm dp_lloyd with "
                "recurring.memory."
            )
        given = {"ledger": "it sees to it that no window is released twice"}
        given |= {"recurring.memory": "give the number of windows that the centers remember"}
        for setting, got in (("ledger", self.ledger), ("recurring.memory", self.recurring.memory)):
            if got is None:
                raise ConfigError(f"{setting} must be given for algorithm windows, got nothing; {given[setting]}.")
        self._check_participation()
        if self.epoch.column in data.partitions:
            raise ConfigError(
                f"data.partitions must leave {self.epoch.column} to epoch.column, got it there; leave it out."
            )

    def _check_participation(self) -> None:
        """Refuses an epoch that does not say in how many windows a unit takes part, or says it of another unit."""
        by_client = self.privacy.unit is PrivacyUnit.CLIENT
        wanted = {"once": not by_client, "max_windows": by_client, "min_separation": by_client}
        for name, is_wanted in wanted.items():
            got = getattr(self.epoch, name)
            if is_wanted is (got is None):
                rule = "be given" if is_wanted else "be left out"
                raise ConfigError(
                    f"epoch.{name} must {rule} at privacy.unit {self.privacy.unit}, got {got!r}; a record says by once "
                    "why it lies in one window, and a client counts in max_windows windows at most, min_separation "
                    "apart."
                )
