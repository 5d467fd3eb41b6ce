"""Jobs of algorithm spherical: its rounds, and the public terms that name clusters."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from dapple_dp.schemas.choices import Algorithm, Auto, ClippingCenter
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.kmeans.sections.clipping_config import CLIPPING_NORMS, ClippingConfig
from dapple_dp.schemas.kmeans.sections.privacy_config import PrivacyConfig
from dapple_dp.schemas.settings.section import Scalar, Section, Text, auto_or_integer, number_from
from dapple_dp.schemas.settings.vocabulary import VocabularySection
from dapple_dp.schemas.tables.encoding import EncodingKind

if TYPE_CHECKING:
    from dapple_dp.schemas.tables.terms_column import TermsColumn

AUTO_STEPS = 15
"""Default rounds of sums."""
CLIENT_NORM = 0.5
"""Largest norm of a client's stacked sums, divided by its number of rows, in units of the clipping norm."""
NAMES_SHARE = 0.4
"""Share of the budget for names."""
MOST_CELLS = 1 << 22
"""Largest product of clusters and terms; that many numbers get noise at once."""


class ClientPrivacyConfig(PrivacyConfig):
    """Privacy budget with the client as the default unit, since authors usually write many texts."""

    unit: PrivacyUnit = Field(
        default=PrivacyUnit.CLIENT,
        description="client or, with a reason in justification, record: what one neighbor adds or removes",
    )


class UnitBallConfig(ClippingConfig):
    """Clipping to length 1 by default, the length of most models' embeddings."""

    norm: Annotated[float, number_from(*CLIPPING_NORMS)] = Field(
        default=1.0, description="the largest L2 norm of a row, a number > 0 in feature units"
    )
    center: ClippingCenter = Field(default=ClippingCenter.NONE, description="none")


class SphericalConfig(Section):
    """Spherical k-means: centers have length 1, and rows belong to the center with the largest inner product."""

    steps: Annotated[Auto | int, auto_or_integer(100)] = Field(
        default=Auto.AUTO,
        description=f"the number of rounds of sums, an integer from 1 to 100, or auto for {AUTO_STEPS}",
    )

    @property
    def n_steps(self) -> int:
        """Number of rounds of sums."""
        return AUTO_STEPS if isinstance(self.steps, str) else self.steps


class NamesConfig(VocabularySection):
    """Naming of clusters by a column of terms; a public vocabulary lists the terms that may be released."""

    named: ClassVar[str] = "names."

    column: Text = Field(
        description="the column of terms, lists of strings or strings, that is no feature but by encode.kind terms"
    )
    most_per_row: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] = Field(
        default=32,
        description="the most different terms of a row that are read, the first ones, an integer from 1 to 1000; the "
        "noise of names grows with its square root",
    )


class SphericalFit(AnyFit):
    """A `fit` job of algorithm spherical; its privacy unit is the client unless the job justifies another."""

    compares_directions = True
    instead_of_kmeans = "use DPTopics"

    algorithm: Literal[Algorithm.SPHERICAL] = Field(description="spherical")
    privacy: ClientPrivacyConfig = Field(description="the section of the guarantee with epsilon and delta")
    clipping: UnitBallConfig = Field(
        default=UnitBallConfig(), description="the section of the contribution bounds with client_rows"
    )
    spherical: SphericalConfig = Field(
        default=SphericalConfig(), description="a section of options for algorithm spherical, or leave it out"
    )
    names: NamesConfig | None = Field(
        default=None, description="a section with column and vocabulary to give clusters names, or leave it out"
    )

    @property
    def terms(self) -> "TermsColumn | None":
        """The column of terms for names; None until the vocabulary is read."""
        if self.names is None or self.names.words is None:
            return None
        # pyarrow is imported here, so that help and schema don't need it.
        from dapple_dp.schemas.tables.terms_column import TermsColumn

        return TermsColumn(column=self.names.column, vocabulary=self.names.words, most=self.names.most_per_row)

    def with_files(self, read: Callable[[str, str], str]) -> Self:
        """Returns the job with the terms of its vocabulary file; raises ConfigError if they are wrong or too many."""
        result = super().with_files(read)
        if result.names is None:
            return result
        result = result.model_copy(update={"names": result.names.with_words(read, "names")})
        result._check_cells()
        return result

    def _check_cells(self) -> None:
        n_terms = 0 if self.names is None or self.names.words is None else len(self.names.words)
        if n_terms * self.max_clusters > MOST_CELLS:
            raise ConfigError(
                f"n_clusters times the terms of names must be at most {MOST_CELLS}, got {self.max_clusters} times "
                f"{n_terms}; give a shorter vocabulary."
            )

    def _check_algorithm(self) -> None:
        self._check_given_count()
        if self.privacy.unit is PrivacyUnit.RECORD and "privacy.unit" not in self.justification:
            raise ConfigError(
                "privacy.unit must be client for algorithm spherical unless the job says why, got 'record' without "
                "a reason; one person may write many texts, so leave it out, or write justification: "
                "{privacy.unit: WHY}."
            )
        self._check_fixed_split("names take a fixed share")
        self._check_no_quality("use spherical.steps, and judge the centers with the evaluate job in the trusted zone")
        self._check_frame()
        self._check_names()

    def _check_frame(self) -> None:
        if self.clipping.center is not ClippingCenter.NONE:
            raise ConfigError(
                "clipping.center must be none for algorithm spherical, got 'server_mean'; leave it out: centers are "
                "directions from the origin."
            )

    def _check_names(self) -> None:
        if self.names is None:
            return
        data = self.data
        features = (data.features,) if isinstance(data.features, str) else data.features
        vectors = {column for column, encoding in self.encode.items() if encoding.kind is EncodingKind.TERMS}
        taken = {data.client_id, *features} - vectors
        if self.names.column in taken or data.has_patterns:
            got = "patterns in data.features" if data.has_patterns else repr(self.names.column)
            raise ConfigError(
                f"names.column must differ from data.client_id and the columns of data.features, got {got}; name "
                "the column of terms, and list the features."
            )
        self._check_cells()
