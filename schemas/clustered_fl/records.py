"""Records of clustered federated learning: public parameters, broadcasts, the clients' rows and their messages."""

import dataclasses
import hashlib
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ModelKind, SelectionScore, WhenScarce

UPDATE_UNIT = 2.0**-32
"""Value of one unit of a client's integer update, in the unit of the model's parameters."""
MAX_UNITS = 1 << 52
"""Limit to which coordinates of an update are clipped; sums over a thousand clients then fit into int64."""
FEATURE_BITS = 20
"""Logarithm of the public norm of rows, which are integers: longer rows are shortened to 2**FEATURE_BITS units."""
GIVEN_SEPARATION = 2.0
"""Smallest credible separation if the number of clusters is given."""
SEARCHED_SEPARATION = 3.5
"""Smallest credible separation if the number of clusters was searched."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Kind and size of a classifier.

    Attributes:
      kind: kind of the model.
      n_features: >= 1.
      n_classes: >= 2; labels are 0, ..., n_classes - 1.
      n_hidden: units of the hidden layer of an MLP, else 0.
      feature_norm: rows are shortened to this L2 norm, >= 1; None for 64 times the root of `n_features`.
    """

    kind: ModelKind
    n_features: int
    n_classes: int
    n_hidden: int = 0
    feature_norm: float | None = None

    @property
    def n_parameters(self) -> int:
        """Number of weights and intercepts of all layers."""
        if self.kind is ModelKind.SOFTMAX:
            return (self.n_features + 1) * self.n_classes
        return (self.n_features + 1) * self.n_hidden + (self.n_hidden + 1) * self.n_classes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainingParams:
    """Parameters of the clients' training.

    Attributes:
      rounds: E >= 1, the first one included.
      local_epochs: K >= 1, per round.
      batch_size: expected size of a Poisson-sampled batch.
      learning_rate: > 0.
      clipping_norm: > 0, of one row's gradient.
      first_batch_size: `batch_size` for the first round; None for full batches.
    """

    rounds: int
    local_epochs: int
    batch_size: int
    learning_rate: float
    clipping_norm: float
    first_batch_size: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringParams:
    """Parameters of the clustering.

    Attributes:
      n_clusters: number of clusters; if `search`, the largest one to try.
      search: true to search the number of clusters from 2 on.
      selection_rounds: rounds in which every client selects its cluster.
      min_separation: clusters with a smaller separation are ignored.
      when_scarce: fallback in that case; never `AUTO`, which is resolved before.
      switch_round: last round with sampled clusters; None to compute it from the overlap.
      select_by: score by which clients select a model.
      offer_rounds: rounds, in order, after which clients that train separate models are offered others.
    """

    n_clusters: int
    search: bool = False
    selection_rounds: int = 0
    min_separation: float = GIVEN_SEPARATION
    when_scarce: WhenScarce = WhenScarce.CLUSTER
    switch_round: int | None = None
    select_by: SelectionScore = SelectionScore.ACCURACY
    offer_rounds: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Silo:
    """Public parameters of one client.

    Attributes:
      client_id: id of the client.
      n_rows: number of rows that the client declared in public, >= 1.
      noise_multiplier: z: noise stddev / clipping norm of a Poisson-sampled step; 0 means no privacy.
      first_round_multiplier: z of steps in the first round.
      select_epsilon: epsilon of one selection; infinity means no privacy.
      choice_stddev: noise stddev of the answer to an offer, in rows; 0 means no privacy.
    """

    client_id: str
    n_rows: int
    noise_multiplier: float
    first_round_multiplier: float
    select_epsilon: float
    choice_stddev: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """All public parameters before the first round.

    Attributes:
      shape: shape of every model.
      training: parameters of every client's training.
      clustering: parameters of the clustering.
      silos: clients in a public order, which gives their indices.
      public_seed: 32 bytes, for starts, initializations and sampled assignments, none of which is secret.
    """

    shape: ModelShape
    training: TrainingParams
    clustering: ClusteringParams
    silos: tuple[Silo, ...]
    public_seed: bytes

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.silos)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedState:
    """State of the server after a round, which it broadcasts: post-processing of private updates and selections.

    Attributes:
      round_number: completed rounds; 0 before the first.
      models: float64, shape (n_models, n_parameters).
      assignments: int64, shape (n_clients,); model that each client trains next, unless it selects one itself.
      responsibilities: float64, shape (n_clients, n_models); probabilities of clusters after the first round,
        else those of `assignments`.
      separation: MSS of the clusters in the first round, or of those that were offered later; NaN without any
        search for clusters.
      switch_round: E_c, the last round with sampled clusters, before selections begin; 0 without clusters.
      em_iterations: iterations of the mixture's fit; 0 if none was fitted.
      offers: float64, shape (n_offers, n_parameters); models that clients compare in the next round.
      offered: int64, shape (n_clients,); index of the model offered to each client, -1 for none.
    """

    round_number: int
    models: NDArray[np.float64]
    assignments: NDArray[np.int64]
    responsibilities: NDArray[np.float64]
    separation: float
    switch_round: int
    em_iterations: int
    offers: NDArray[np.float64]
    offered: NDArray[np.int64]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Returns named arrays to store in a file."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Inverse of `to_arrays`; raises KeyError if an array is missing."""
        return cls(
            round_number=int(arrays["round_number"]),
            models=np.asarray(arrays["models"], dtype=np.float64),
            assignments=np.asarray(arrays["assignments"], dtype=np.int64),
            responsibilities=np.asarray(arrays["responsibilities"], dtype=np.float64),
            separation=float(arrays["separation"]),
            switch_round=int(arrays["switch_round"]),
            em_iterations=int(arrays["em_iterations"]),
            offers=np.asarray(arrays["offers"], dtype=np.float64),
            offered=np.asarray(arrays["offered"], dtype=np.int64),
        )

    def check(self, n_clients: int, n_parameters: int) -> None:
        """Refuses a state that doesn't fit the federation; raises ValueError."""
        n_models = len(self.models)
        shapes = (self.models.shape, self.assignments.shape, self.responsibilities.shape)
        if shapes != ((n_models, n_parameters), (n_clients,), (n_clients, n_models)) or not n_models:
            raise ValueError("the state must have the clients and parameters of its federation, got others.")
        finite = all(np.isfinite(array).all() for array in (self.models, self.responsibilities, self.offers))
        if not finite or ((self.assignments < 0) | (self.assignments >= n_models)).any():
            raise ValueError("the state must assign every client to a finite model, got another one.")
        if (self.offers.shape[1:], self.offered.shape) != ((n_parameters,), (n_clients,)) or (
            (self.offered < -1) | (self.offered >= len(self.offers))
        ).any():
            raise ValueError("the state must offer models of its federation, got others.")

    def digest(self) -> str:
        """Returns the SHA-256 of names, types, shapes and values, in hexadecimal."""
        digest = hashlib.sha256()
        for name, values in self.to_arrays().items():
            digest.update(f"{name} {values.dtype.str} {values.shape} ".encode())
            digest.update(values.tobytes())
        return digest.hexdigest()


def _are_bounded(features: NDArray[Any]) -> bool:
    """Returns whether all rows are float32 integers of norm at most 2**FEATURE_BITS."""
    squared = np.einsum("ij,ij->i", features, features, dtype=np.float64)
    bounded = features.dtype == np.float32 and (squared <= 4.0**FEATURE_BITS).all()
    return bool(bounded and (np.trunc(features) == features).all())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """Rows of one client; private.

    Attributes:
      features: float32 integers of bounded norm, shape (n_rows, n_features). n_rows may be 0.
      labels: int64, shape (n_rows,), 0 <= label < n_classes.
      digest: digest of the rows, an input of the private randomness; computed by `of`.
    """

    features: NDArray[Any]
    labels: NDArray[np.int64]
    digest: bytes

    def __repr__(self) -> str:
        return f"ClientRows(private, n_features={self.features.shape[1]})"

    @classmethod
    def of(cls, features: NDArray[Any], labels: NDArray[np.int64]) -> Self:
        """Creates the rows with their digest.

        Raises:
          ValueError: if rows aren't bounded; computations on them wouldn't be exact.
        """
        features, labels = np.ascontiguousarray(features), np.ascontiguousarray(labels, dtype=np.int64)
        if not _are_bounded(features):
            raise ValueError(
                "features must be float32 integers of bounded norm, got others; bound_features makes them."
            )
        digest = hashlib.sha256(f"{features.dtype.str} {features.shape} ".encode())
        digest.update(features.data)
        digest.update(labels.data)
        return cls(features, labels, digest.digest())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientUpdate:
    """Message of a client in a round; differentially private by itself.

    Attributes:
      client: index of the client.
      slot: index of the sum for the update: the client's index in the first round, later `cluster`.
      cluster: index of the trained model.
      values: int64, shape (n_parameters,); change of the model, in units of 2**-32.
      answer: noisy number of rows by which the offered model beats the current one; 0 without an offer.
    """

    client: int
    slot: int
    cluster: int
    values: NDArray[np.int64]
    answer: int = 0
