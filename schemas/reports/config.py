"""Settings of the jobs `encode`, `shuffle` and `decode`, which cluster private reports from one round."""

import functools
from collections.abc import Mapping
from typing import Annotated, Self, TypeVar

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import Auto, InvalidRows, ReportMode
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.sections.cluster_choice import MOST_CLUSTERS
from dapple_dp.schemas.reports.parameters import (
    MOST_LEVELS,
    MOST_STATED_EPSILON,
    ReportParameters,
    ReportVariant,
)
from dapple_dp.schemas.settings import rejection, yaml_text
from dapple_dp.schemas.settings.section import (
    Count,
    Epsilon,
    JobSettings,
    Scalar,
    Section,
    Share,
    Text,
    Whole,
    auto_or_integer,
    number_from,
)
from dapple_dp.schemas.tables.data_section import DataConfig, LedgerPath, OptionalServerData, check_named
from dapple_dp.schemas.tables.encoding import ColumnEncoding, Encodings, check_encodings


class ReportTreeConfig(Section):
    """The ball that contains the points, and the tree over it."""

    radius: Annotated[float, number_from(1e-100, 1e100)] = Field(
        description="the public radius of the ball to which points are clipped, a number > 0 in feature units"
    )
    depth: Annotated[Auto | int, auto_or_integer(MOST_LEVELS)] = Field(
        default=Auto.AUTO,
        description=f"the number of levels of the tree, an integer from 1 to {MOST_LEVELS}, or auto",
    )


class ReportPrivacyConfig(Section):
    """Privacy guarantee of each client."""

    unit: PrivacyUnit = Field(description="client: what one neighbor replaces")
    epsilon: Epsilon = Field(
        description="the epsilon of one report (mode local) or of a shuffled batch (mode shuffle), a finite number > 0"
    )
    delta: Share | None = Field(
        default=None,
        description="the delta of a shuffled batch, strictly between 0 and 1; unused in mode local",
    )


class ReportOptions(Section):
    """Mode, variant and place of reports."""

    mode: ReportMode = Field(default=ReportMode.LOCAL, description="local, or shuffle")
    variant: ReportVariant | None = Field(
        default=None,
        description="leaves, nested, points for reports without levels, privunit for codewords sent in full, or paper, "
        "or leave it out for leaves in mode local with 8 features or more, else nested",
    )
    min_batch: Count = Field(
        default=100_000,
        description="the public least number of reports of a batch, an integer >= 1; mode shuffle refuses fewer",
    )
    parameters: Text | None = Field(
        default=None, description="the path of an existing file of public parameters, or leave it out"
    )
    arrived: Text | None = Field(
        default=None, description="the folder of the reports as they arrived from devices, for shuffle"
    )
    path: Text | None = Field(default=None, description="the folder of the reports, for decode")


class EncodeConfig(JobSettings):
    """One `encode` job."""

    data: DataConfig = Field(description="the section of the private table with path, features and client_id")
    n_clusters: Annotated[int, Field(strict=True, ge=1, le=MOST_CLUSTERS), Scalar] = Field(
        description="the number of centers, an integer >= 1"
    )
    privacy: ReportPrivacyConfig = Field(description="the section of the guarantee with unit and epsilon")
    tree: ReportTreeConfig = Field(description="the section of the ball and the tree with radius")
    reports: ReportOptions = Field(default=ReportOptions(), description="a section of options, or leave it out")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns to encodings, each with kind standardize, one_hot or quantile_bins",
    )
    server_data: OptionalServerData = Field(
        default=None, description="the section of public rows for encodings that learn from them, or leave it out"
    )
    key_uri: Text | None = Field(
        default=None, description="the place of the key of nonces and coins, or leave it out for a key of the run"
    )
    ledger: LedgerPath = None

    _ledger_knows_the_data = pydantic.model_validator(mode="after")(check_named)

    @pydantic.model_validator(mode="after")
    def _epsilon_is_small_enough(self) -> Self:
        if self.privacy.epsilon > MOST_STATED_EPSILON:
            raise ConfigError(
                f"privacy.epsilon must be at most {MOST_STATED_EPSILON:g} for reports, got {self.privacy.epsilon:g}; "
                "lower it."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _every_client_sends_one_report(self) -> Self:
        if self.privacy.unit is not PrivacyUnit.CLIENT:
            raise ConfigError(
                f"privacy.unit must be 'client' for reports, got {str(self.privacy.unit)!r}; a client sends one report."
            )
        if self.data.client_id is None:
            raise ConfigError("data.client_id is required for reports; name the column of client ids.")
        if self.data.max_rows_per_client not in (None, 1):
            raise ConfigError(
                f"data.max_rows_per_client must be 1 for reports, got {self.data.max_rows_per_client}; leave it out."
            )
        if self.data.on_invalid_rows is not InvalidRows.FAIL:
            raise ConfigError(
                "data.on_invalid_rows must be 'fail' for reports, got 'drop'; whether a client sends a report must not "
                "depend on its row, so correct the data."
            )
        return self

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """Encodings of columns, by name; columns without one are features as they are."""
        return self.encode

    _encodings_fit_the_data = pydantic.model_validator(mode="after")(check_encodings)

    @pydantic.model_validator(mode="after")
    def _mode_has_what_it_needs(self) -> Self:
        if self.reports.mode is ReportMode.SHUFFLE and self.privacy.delta is None:
            raise ConfigError("privacy.delta is required for reports.mode shuffle; give a small number such as 1e-6.")
        if self.reports.mode is ReportMode.SHUFFLE and self.reports.variant is ReportVariant.PAPER:
            raise ConfigError(
                "reports.variant 'paper' isn't supported for reports.mode shuffle; leave it out for nested."
            )
        return self


class CollectedReports(JobSettings):
    """A job on existing reports; the settings of `encode` may be included, and must agree with the reports."""

    reports: ReportOptions = Field(description="the section of the reports with their folder")
    seed: Whole = Field(default=0, description="the seed of k-means on the server, an integer >= 0")
    job: EncodeConfig | None = Field(default=None, description="the settings of the encode job, or leave them out")

    def check(self, parameters: ReportParameters) -> None:
        """Compares the job's settings with the parameters of the reports.

        Raises:
          ConfigError: if they differ.
        """
        if self.job is None:
            return
        guarantee = parameters.guarantee
        said = {
            "n_clusters": (self.job.n_clusters, parameters.n_clusters),
            "privacy.epsilon": (self.job.privacy.epsilon, guarantee.epsilon),
            "tree.radius": (self.job.tree.radius, parameters.radius),
            "reports.mode": (str(self.reports.mode), str(guarantee.mode)),
            "reports.variant": (str(self.reports.variant or parameters.variant), str(parameters.variant)),
            "reports.min_batch": (self.reports.min_batch, guarantee.min_batch),
        }
        for name, (wanted, found) in said.items():
            if wanted != found:
                raise ConfigError(
                    f"{name} must be {found!r} as in the reports, got {wanted!r}; correct it or leave it out."
                )


class DecodeConfig(CollectedReports):
    """One `decode` job."""

    @pydantic.model_validator(mode="after")
    def _has_reports(self) -> Self:
        if self.reports.path is None:
            raise ConfigError("reports.path is required for decode; give the output folder of encode or shuffle.")
        return self


class ShuffleConfig(CollectedReports):
    """One `shuffle` job."""

    @pydantic.model_validator(mode="after")
    def _has_reports(self) -> Self:
        if self.reports.arrived is None:
            raise ConfigError("reports.arrived is required for shuffle; give the folder of the reports that arrived.")
        return self


Collected = TypeVar("Collected", bound=CollectedReports)
_OF_DECODE = ("seed", "windows")
"""Settings for `decode` only, in a file that it shares with the other jobs."""


def load_encode_config(text: str) -> EncodeConfig:
    """Parses an `encode` job from YAML text; settings for `decode` only are ignored.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "reports")
    return rejection.check_config(EncodeConfig, _of_encode(settings))


def load_collected(kind: type[Collected], text: str) -> Collected:
    """Parses a job on collected reports from YAML text, with or without the settings of its `encode` job.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "reports")
    own: dict[str, object] = {name: settings[name] for name in kind.model_fields if name in settings and name != "job"}
    others = _of_encode(settings)
    if others.keys() - {"reports", "experimental"}:
        rejection.check_config(EncodeConfig, others)
        own["job"] = others
    return rejection.check_config(kind, own)


load_decode_config = functools.partial(load_collected, DecodeConfig)
"""Parses a `decode` job from YAML text; raises ConfigError."""
load_shuffle_config = functools.partial(load_collected, ShuffleConfig)
"""Parses a `shuffle` job from YAML text; raises ConfigError."""


def _of_encode(settings: dict[str, object]) -> dict[str, object]:
    """Returns the settings without those for `decode` only."""
    return {name: value for name, value in settings.items() if name not in _OF_DECODE}
