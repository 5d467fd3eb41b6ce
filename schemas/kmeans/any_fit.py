"""Settings that every private `fit` job has, whatever its algorithm.

Field descriptions hold units and ranges; they complete the sentence "give ..." in error messages.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import Algorithm, Auto, ClippingCenter, ClippingRule, StartSpace, Trust
from dapple_dp.schemas.core.plan import Allocation, PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.recurring.config import RecurringConfig
from dapple_dp.schemas.kmeans.sections.clipping_config import PRIVATE_NORM_SHARE, ClippingConfig
from dapple_dp.schemas.kmeans.sections.cluster_choice import ClusterChoice, ClusterCount
from dapple_dp.schemas.kmeans.sections.feddp_config import FedDPOptions, LloydConfig, QualityConfig
from dapple_dp.schemas.kmeans.sections.privacy_config import PrivacyConfig
from dapple_dp.schemas.masked.config import MaskedConfig, check_masked
from dapple_dp.schemas.privacy.curator import DeploymentConfig, PlanOptions, PublicText, SettingName, check_justified
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import JobSettings, Scalar, Section, Text, Whole
from dapple_dp.schemas.tables.data_section import (
    DataConfig,
    LedgerPath,
    OptionalServerData,
    check_named,
)
from dapple_dp.schemas.tables.encoding import ColumnEncoding, Encodings, check_encodings, with_vocabularies

if TYPE_CHECKING:
    from dapple_dp.schemas.tables.terms_column import TermsColumn


class ChunksConfig(Section):
    """Split of the rounds into pipelines; it affects neither results nor privacy."""

    rounds: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] | None = Field(
        default=None,
        description="the number of rounds of one pipeline, an integer from 1 to 1000; a run that was stopped resumes "
        "after the last one that ended; leave it out for all rounds in one pipeline, but "
        "for ten on a Flink cluster and for one where one machine reads 8 GiB of rows",
    )


class AnyFit(JobSettings):
    """Base of all `fit` jobs; the sections of one algorithm are in its class, see `fit_config`."""

    has_domain: ClassVar[bool] = False
    """True if a section of the algorithm bounds rows by a box."""
    compares_directions: ClassVar[bool] = False
    """True if only the directions of rows are compared, as vectors of terms need."""
    instead_of_kmeans: ClassVar[str] = ""
    """Python alternative for algorithms that `DPKMeans` doesn't run; empty for those that it runs."""

    algorithm: Algorithm = Field(
        description=f"the algorithm to run, where auto is a choice by what is public: {', '.join(Algorithm)}"
    )
    data: DataConfig = Field(description="the section of the private table with path and features")
    server_data: OptionalServerData = Field(
        default=None, description="the section of the public table with path, or none"
    )
    n_clusters: ClusterCount = Field(
        description="the number of centers, an integer >= 1, or a section of max and choose: elbow"
    )
    privacy: PrivacyConfig = Field(description="the section of the guarantee with unit, epsilon and delta")
    clipping: ClippingConfig = Field(description="the section of the contribution bounds with norm")
    encode: Encodings = Field(
        default_factory=dict,
        description="a mapping of columns of data.features to a section with kind, or leave it out",
    )
    lloyd: LloydConfig = Field(default=LloydConfig(), description="a section with steps, or leave it out")
    quality: QualityConfig | None = Field(
        default=None,
        description="a section with share to release the noisy cost of the centers and the noisy sizes of their "
        "clusters, or leave it out",
    )
    feddp_kmeans: FedDPOptions = Field(default=FedDPOptions(), description="a section of options, or leave it out")
    recurring: RecurringConfig | None = Field(
        default=None, description="a section with previous to follow an earlier fit, or leave it out"
    )
    trust: Trust = Field(
        default=Trust.CENTRAL,
        description="central where the pipeline is the trusted aggregator, or masked where it adds up masked messages",
    )
    masked: MaskedConfig = Field(
        default=MaskedConfig(), description="a section of trust masked with scheme or secret_uri, or leave it out"
    )
    chunks: ChunksConfig = Field(default=ChunksConfig(), description="a section with rounds, or leave it out")
    key_uri: Text | None = Field(
        default=None,
        description="the place of the noise key on any Beam filesystem, or leave it out for a key of the run",
    )
    ledger: LedgerPath = None
    seed: Whole | None = Field(
        default=None, description="the seed of public randomness (never of noise), an integer >= 0, or leave it out"
    )

    plan: PlanOptions | None = Field(default=None, description="a section with assumed_rows, or leave it out")
    deployment: DeploymentConfig | None = Field(
        default=None, description="a section of what only the curator knows, published as it is, or leave it out"
    )
    justification: dict[SettingName, PublicText] = Field(
        default_factory=dict,
        description="a mapping of settings, such as clipping.norm, to the reason for their value, published as it is, "
        "or leave it out",
    )

    @property
    def uncut(self) -> Self:
        """The job without its split into pipelines."""
        return self.model_copy(update={"chunks": ChunksConfig()})

    @property
    def as_printed(self) -> bool:
        """True if the method runs as printed in its paper, without guards against noise."""
        return False

    @property
    def max_clusters(self) -> int:
        """The number of centers, or the largest that may be chosen."""
        return self.n_clusters.max if isinstance(self.n_clusters, ClusterChoice) else self.n_clusters

    @property
    def chooses_clusters(self) -> bool:
        """True if the run chooses the number of centers."""
        return isinstance(self.n_clusters, ClusterChoice)

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """Encodings of columns, by name; columns without one are features as they are."""
        return self.encode

    @property
    def terms(self) -> "TermsColumn | None":
        """The column of public terms that rows have in addition to features; None if there is none."""
        return None

    def with_files(self, read: Callable[[str, str], str]) -> Self:
        """Returns the job with the contents of its public text files filled in; repeated calls change nothing.

        Args:
          read: (path, name of the setting) -> text; raises ConfigError.
        """
        return self.model_copy(update={"encode": with_vocabularies(self.encode, read)})

    @property
    def starts_warm(self) -> bool:
        """True if the Lloyd rounds start from the centers of an earlier fit."""
        return self.recurring is not None and self.recurring.warm_start

    @property
    def covers(self) -> dict[str, Any] | None:
        """Terms of an epoch that the charge covers, as in outputs and the ledger; None if it covers just this run."""
        return None

    def _check_algorithm(self) -> None:
        """Refuses settings that the algorithm doesn't support.

        Raises:
          ConfigError: one sentence.
        """

    def _check_warm_start(self) -> None:
        """Refuses a warm start if the algorithm, with these options, can't start from given centers.

        Raises:
          ConfigError: one sentence.
        """
        raise ConfigError(
            f"algorithm {self.algorithm} doesn't support a warm start; write recurring.warm_start: false, or use "
            "another algorithm."
        )

    def _check_given_count(self) -> None:
        """Refuses `n_clusters` that isn't a number.

        Raises:
          ConfigError: one sentence.
        """
        if self.chooses_clusters:
            raise ConfigError(
                f"n_clusters must be an integer for algorithm {self.algorithm}, got a section; give the number, or "
                "use algorithm feddp_kmeans."
            )

    def _check_fixed_split(self, reason: str) -> None:
        """Refuses an allocation and shares, since the algorithm divides the budget itself.

        Raises:
          ConfigError: one sentence.
        """
        if self.privacy.allocation is not Allocation.TUNED or self.privacy.shares is not None:
            raise ConfigError(
                f"privacy.allocation and privacy.shares aren't supported for algorithm {self.algorithm}; leave them "
                f"out: {reason}."
            )

    def _check_no_quality(self, remedy: str) -> None:
        """Refuses `quality` and `lloyd.steps`.

        Raises:
          ConfigError: one sentence.
        """
        if self.quality is not None or self.lloyd.steps:
            got = "quality" if self.quality is not None else "lloyd.steps"
            raise ConfigError(f"{got} isn't supported for algorithm {self.algorithm}; {remedy}.")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _domain_bounds_rows(cls, data: object) -> object:
        """Takes clipping norm and center from the domain, if there is one, unless the job gives them."""
        if not cls.has_domain or not isinstance(data, Mapping) or not isinstance(data.get("clipping", {}), Mapping):
            return data
        by_domain = {"norm": ClippingRule.DOMAIN.value, "center": ClippingCenter.NONE.value}
        return {**data, "clipping": {**by_domain, **data.get("clipping", {})}}

    @pydantic.model_validator(mode="after")
    def _reasons_are_of_settings(self) -> Self:
        check_justified(self.justification, type(self).model_fields)
        return self

    @pydantic.model_validator(mode="after")
    def _settings_belong_to_the_algorithm(self) -> Self:
        if self.clipping.norm is ClippingRule.DOMAIN and not self.has_domain:
            raise ConfigError(
                f"clipping.norm must be server_radius, private or a number for algorithm {self.algorithm}, "
                "got 'domain'; use algorithm dp_lloyd, which has a domain."
            )
        self._check_algorithm()
        return self

    @pydantic.model_validator(mode="after")
    def _warm_starts_have_rounds_and_a_public_frame(self) -> Self:
        if not self.starts_warm:
            return self
        self._check_warm_start()
        if self.chooses_clusters:
            raise ConfigError(
                "n_clusters must be an integer for a warm start, got a section; give the number of the earlier "
                "fit, or write recurring.warm_start: false."
            )
        if self.clipping.norm is ClippingRule.PRIVATE:
            raise ConfigError(
                "clipping.norm must be public for a warm start, got 'private'; give frame.clipping_norm of the "
                "earlier run.json as a number."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _options_belong_to_the_algorithm(self) -> Self:
        if self.algorithm is Algorithm.FEDDP_KMEANS or self.feddp_kmeans.space is StartSpace.AUTO:
            return self
        raise ConfigError(
            f"feddp_kmeans may hold only restarts for algorithm {self.algorithm}, got other options; remove them, "
            "or use algorithm feddp_kmeans."
        )

    @pydantic.model_validator(mode="after")
    def _masks_are_asked_for(self) -> Self:
        check_masked(self.trust, self.masked, self.key_uri)
        return self

    _ledger_knows_the_data = pydantic.model_validator(mode="after")(check_named)

    @pydantic.model_validator(mode="after")
    def _client_unit_knows_clients(self) -> Self:
        needed = {"data.client_id": self.data.client_id, "clipping.client_rows": self.clipping.client_rows}
        for name, value in needed.items():
            if self.privacy.unit is PrivacyUnit.CLIENT and value is None:
                raise ConfigError(
                    f"{name} is required for privacy.unit client; give {rejection.description(name, AnyFit)}."
                )
        return self

    @pydantic.model_validator(mode="after")
    def _clipping_has_its_server_data(self) -> Self:
        if self.server_data is not None:
            return self
        if self.clipping.norm is ClippingRule.SERVER_RADIUS:
            raise ConfigError(
                "clipping.norm must be a number or private without server_data, got 'server_radius'; give the norm "
                "in feature units, private, or a server_data section."
            )
        if self.clipping.center is not ClippingCenter.NONE:
            raise ConfigError(
                f"clipping.center must be 'none' without server_data, got {str(self.clipping.center)!r}; write "
                "clipping.center: none, or give a server_data section."
            )
        return self

    _encodings_fit_the_data = pydantic.model_validator(mode="after")(check_encodings)

    @property
    def expected_units(self) -> int | None:
        """The public number of rows (privacy unit client: of clients), or else the assumed one; None without either."""
        return self.data.public_rows or (None if self.plan is None else self.plan.assumed_rows)

    @pydantic.model_validator(mode="after")
    def _shares_can_be_chosen(self) -> Self:
        if self.privacy.shares is not Auto.AUTO:
            return self
        if self.expected_units is None:
            raise ConfigError(
                "plan.assumed_rows is required for privacy.shares auto; give a public guess of the number of rows "
                "(privacy unit client: of clients), or data.public_rows."
            )
        tuned = self.privacy.allocation is Allocation.TUNED and self.clipping.norm is not ClippingRule.PRIVATE
        if self.algorithm is Algorithm.FEDDP_KMEANS and self.server_data is not None and tuned and not self.starts_warm:
            return self
        raise ConfigError(
            "privacy.shares: auto needs algorithm feddp_kmeans, server_data, privacy.allocation tuned, a public "
            "clipping.norm and no warm start; leave it out."
        )

    @pydantic.model_validator(mode="after")
    def _shares_leave_something(self) -> Self:
        shares = {
            "lloyd.share": self.lloyd.share if self.lloyd.steps else 0.0,
            "quality.share": self.quality.share if self.quality else 0.0,
            "the private norm": PRIVATE_NORM_SHARE if self.clipping.norm is ClippingRule.PRIVATE else 0.0,
        }
        taken = {name: share for name, share in shares.items() if share}
        total = math.fsum(taken.values())
        if total >= 1.0:
            raise ConfigError(
                f"the sum of {', '.join(taken)} must be less than 1, got {total:.6g}; "
                "lower them so that the start keeps some of the budget."
            )
        return self
