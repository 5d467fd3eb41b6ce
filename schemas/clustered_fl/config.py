"""Jobs that train one classifier per cluster of clients; each client trains with DP-SGD."""

from collections.abc import Mapping
from typing import Annotated, Self

import pydantic
from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import (
    Adjacency,
    ClusterSearch,
    FederatedAlgorithm,
    ModelKind,
    SelectionScore,
    SiloAccountant,
    WhenScarce,
)
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection, yaml_text
from dapple_dp.schemas.settings.section import (
    Count,
    Epsilon,
    JobSettings,
    Positive,
    Scalar,
    Section,
    Share,
    Text,
    Whole,
    python_scalar,
)
from dapple_dp.schemas.tables.data_section import DataConfig, LedgerPath, OptionalCsv, check_named


class SearchedClusters(Section):
    """A number of clusters that the run finds itself, at no further privacy cost."""

    max: Annotated[int, Field(strict=True, ge=2)] = Field(description="the largest number of clusters, an integer >= 2")
    choose: ClusterSearch = Field(description="mss: where the clusters of the first updates are farthest apart")


def _searched_or_given(value: object) -> object:
    """Validates an integer >= 1, or a section with `max` and `choose`."""
    value = python_scalar(value)
    if isinstance(value, SearchedClusters):
        return value
    if isinstance(value, Mapping):
        try:
            return SearchedClusters.model_validate(dict(value))
        except pydantic.ValidationError:
            raise rejection.broken_rule("an integer, or a section of max (at least 2) and choose: mss") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise rejection.broken_rule("an integer")
    if value < 1:
        raise rejection.broken_rule("at least 1")
    return value


def _row_counts(value: object) -> object:
    """Validates a number of rows, or a mapping of clients to their numbers; keys become text."""
    value = python_scalar(value)
    counts = value.values() if isinstance(value, Mapping) else [value]
    for count in map(python_scalar, counts):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise rejection.broken_rule("an integer of at least 1, or a mapping of clients to such integers")
    if isinstance(value, Mapping):
        return {str(client): int(rows) for client, rows in value.items()}
    return value


class LabeledDataConfig(DataConfig):
    """The private tables of all clients, and their public properties."""

    client_id: Text = Field(description="the column (or Hive partition column) that names the client")
    label: Text = Field(description="the integer column with the classes, numbered from 0")
    classes: Annotated[int, Field(strict=True, ge=2, le=100_000), Scalar] = Field(
        default=10, description="the public number of classes, an integer >= 2"
    )
    group: Text | None = Field(
        default=None,
        description="the column with a public group of the client, whose accuracy is reported, or leave it out",
    )
    public_rows: Annotated[int | dict[str, int] | None, BeforeValidator(_row_counts)] = Field(  # type: ignore[assignment]
        default=None,
        description="the public number of rows of every client, an integer >= 1, or a mapping of clients to theirs, or "
        "leave it out to count the rows and publish the counts",
    )

    @pydantic.model_validator(mode="after")
    def _columns_are_apart(self) -> Self:
        features = (self.features,) if isinstance(self.features, str) else self.features
        for name in (self.label, self.group):
            if name is not None and name in (*features, self.client_id):
                raise ConfigError(
                    f"data.{'label' if name == self.label else 'group'} must differ from data.features and "
                    f"data.client_id, got {name!r}; name another column."
                )
        if self.missing:
            raise ConfigError(
                "data.missing isn't supported for clustered_fl; leave it out and fill missing values in the data."
            )
        if self.max_rows_per_client is not None:
            raise ConfigError(
                "data.max_rows_per_client isn't supported for clustered_fl; leave it out, since DP-SGD bounds "
                "every row."
            )
        return self


class SiloPrivacyConfig(Section):
    """Privacy budget of every client for the data that it sends; each client has its own guarantee for its rows."""

    epsilon: Epsilon = Field(description="the total epsilon of every client, a finite number > 0")
    delta: Share = Field(description="the total delta of every client, strictly between 0 and 1 and below 1 / rows")
    adjacency: Adjacency = Field(
        description="add_remove if neighbors differ by one row more or less, replace_one by one row replaced"
    )
    accountant: SiloAccountant | None = Field(
        default=None,
        description="rdp or pld, or leave it out for rdp (adjacency replace_one: pld)",
    )
    select_share: Share = Field(
        default=0.03, description="the epsilon of one selection as a share of epsilon, strictly between 0 and 1"
    )
    first_round_noise_ratio: Positive = Field(
        default=1.0, description="the noise multiplier of the first round over that of later ones, a number > 0"
    )

    choice_share: Share = Field(
        default=0.05,
        description="the share of the budget of one choice between a client's own model and one that it is offered, "
        "strictly between 0 and 1",
    )

    @pydantic.model_validator(mode="after")
    def _accountant_knows_the_neighbors(self) -> Self:
        if self.adjacency is Adjacency.REPLACE_ONE and self.accountant_used is not SiloAccountant.PLD:
            raise ConfigError(
                f"privacy.accountant must be pld for privacy.adjacency replace_one, got {self.accountant}; leave it "
                "out, since Renyi accounting covers only rows that are added or removed."
            )
        return self

    @property
    def accountant_used(self) -> SiloAccountant:
        """The given accountant, or the default for the adjacency."""
        if self.accountant is not None:
            return self.accountant
        return SiloAccountant.RDP if self.adjacency is Adjacency.ADD_REMOVE else SiloAccountant.PLD


class TrainingConfig(Section):
    """Training of the clients' models."""

    model: ModelKind = Field(description="softmax, or mlp for one hidden layer")
    rounds: Annotated[int, Field(strict=True, ge=1, le=100_000), Scalar] = Field(
        description="the number of rounds, the first one included, an integer from 1 to 100000"
    )
    local_epochs: Count = Field(default=1, description="the number of epochs of a client in a round, an integer >= 1")
    batch_size: Count = Field(description="the expected size of a batch after the first round, an integer >= 1")
    first_batch_size: Count | None = Field(
        default=None,
        description="the expected size of a batch in the first round, an integer >= 1, or leave it out for all rows",
    )
    learning_rate: Annotated[float, Field(strict=True, gt=0, le=1e9), Scalar] = Field(
        description="the learning rate, a number > 0 and at most 1e9"
    )
    clipping_norm: Annotated[float, Field(strict=True, ge=1e-9, le=1e9), Scalar] = Field(
        description="the largest L2 norm of the gradient of a row, a number from 1e-9 to 1e9"
    )
    feature_norm: Annotated[float, Field(strict=True, ge=1, le=1e9), Scalar] | None = Field(
        default=None,
        description="the public L2 norm to which longer rows are shortened, a number from 1 to 1e9 in feature units, "
        "or leave it out for 64 times the root of the number of features",
    )
    hidden_units: Annotated[int, Field(strict=True, ge=1, le=100_000), Scalar] = Field(
        default=64,
        description="the number of hidden units of model mlp, an integer from 1 to 100000",
    )


class ClusteringConfig(Section):
    """Clustering of the clients."""

    min_separation: Annotated[float, Field(strict=True, ge=0, le=1e9), Scalar] | None = Field(
        default=None,
        description="the separation of the first updates (MSS) below which clusters are not believed, a number from "
        "0, which always believes the clusters, to 1e9, or leave it out for 2 (3.5 if n_clusters is searched)",
    )
    when_scarce: WhenScarce = Field(
        default=WhenScarce.AUTO,
        description="what is done where rows are too scarce for clusters to be seen: cluster for a full "
        "first batch and, while clusters are not believed, models of the clients' own; apart for such models from the "
        "start; one_model for a full first batch and, without clusters, one model for all; auto for cluster or apart "
        "by a simulation on public numbers",
    )
    switch_round: Count | None = Field(
        default=None,
        description="the last round with clusters drawn from the mixture, an integer >= 1 and at most "
        "training.rounds, or leave it out for the paper's (1 - MPO) rounds / 2",
    )
    selection_share: Annotated[float, Field(strict=True, gt=0, le=1), Scalar] = Field(
        default=0.1,
        description="the share of the rounds in which every client selects its cluster, a number in (0, 1]; each "
        "selection spends privacy.select_share",
    )
    select_by: SelectionScore = Field(
        default=SelectionScore.ACCURACY,
        description="what clients compare models by: accuracy for the rows that a model classifies correctly, or loss "
        "for its cross-entropy, where a row counts for at most 4",
    )


class EvaluationConfig(Section):
    """Rows on which the report evaluates the models; these results are not private."""

    path: Text = Field(description="the path of a Parquet or CSV file, a glob or a folder with the columns of data")
    csv: OptionalCsv = None


class ChunksConfig(Section):
    """Split of the rounds into pipelines; it affects neither results nor privacy."""

    rounds: Annotated[int, Field(strict=True, ge=1, le=1000), Scalar] = Field(
        default=10, description="the number of rounds of one pipeline, an integer from 1 to 1000"
    )
    cache_megabytes: Whole = Field(
        default=1024, description="the size of rows that a worker process keeps between rounds, an integer >= 0"
    )


class ClusteredFLConfig(JobSettings):
    """One `clustered_fl` job."""

    algorithm: FederatedAlgorithm = Field(description="r_dpcfl")
    data: LabeledDataConfig = Field(description="the section of the private tables with path, client_id and label")
    n_clusters: Annotated[int | SearchedClusters, BeforeValidator(_searched_or_given)] = Field(
        description="the number of clusters, an integer >= 1, or a section of max and choose: mss"
    )
    privacy: SiloPrivacyConfig = Field(description="the section of the guarantee with epsilon, delta and adjacency")
    training: TrainingConfig = Field(description="the section of training with model, rounds and batch_size")
    clustering: ClusteringConfig = Field(
        default=ClusteringConfig(), description="a section of options, or leave it out"
    )
    evaluation: EvaluationConfig | None = Field(
        default=None, description="a section with the path of rows on which the report judges models, or leave it out"
    )
    chunks: ChunksConfig = Field(default=ChunksConfig(), description="a section with rounds, or leave it out")
    key_uri: Text | None = Field(
        default=None, description="the place of an existing noise key, or leave it out for a key of the run"
    )
    ledger: LedgerPath = None
    seed: Whole = Field(default=0, description="the seed of public randomness (never of noise), an integer >= 0")

    _ledger_knows_the_data = pydantic.model_validator(mode="after")(check_named)

    @pydantic.model_validator(mode="after")
    def _clusters_are_left_in_a_round_of_the_run(self) -> Self:
        if (self.clustering.switch_round or 0) > self.training.rounds:
            raise ConfigError(
                f"clustering.switch_round must be at most training.rounds = {self.training.rounds}, got "
                f"{self.clustering.switch_round}; give an earlier round."
            )
        return self

    @property
    def max_clusters(self) -> int:
        """The number of clusters, or the largest one to try."""
        return self.n_clusters if isinstance(self.n_clusters, int) else self.n_clusters.max


def load_clustered_fl_config(text: str) -> ClusteredFLConfig:
    """Parses a job from YAML text.

    Raises:
      ConfigError: one sentence about the first wrong setting, or if the text is not YAML.
    """
    settings = rejection.mapping(yaml_text.parse(text), "algorithm, data, n_clusters, privacy and training")
    return rejection.check_config(ClusteredFLConfig, settings)
