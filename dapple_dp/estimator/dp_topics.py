"""Private topics of texts in memory: spherical k-means on their vectors, with names from a public vocabulary."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dapple_dp.estimator.dp_kmeans import DPKMeans
from dapple_dp.estimator.job_of_parameters import Place, in_parameters, path_of, seed_of
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, validated
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import Terms
from dapple_dp.transforms.kmeans.protocols import protocol_of

if TYPE_CHECKING:
    from dapple_dp.estimator.cut import GroupedCenters

_TERMS = "terms of a text"
_SECTIONS = ("spherical", "names")


class DPTopics(DPKMeans):
    """Differentially private topics: centers of the vectors of texts, with names.

    Vectors can come from any embedding model; it isn't private with respect to its own training texts. Rows longer
    than `clipping_norm` are shortened to it. `fit` spends epsilon and delta for centers, sizes and names together; the
    notes of `DPKMeans` on spending and on labels apply here, too.

    Args:
      n_clusters: number of topics, >= 1.
      epsilon: spent by one fit, > 0; has no default.
      delta: spent by one fit, in (0, 1); has no default.
      vocabulary: public terms, a list or an array; names come only from these. None for topics without names.
      width: number of features for texts that have terms and no vector, from 8 to 8,192.
      client_rows: public typical number of texts of a client, >= 1; required for unit "client".
      unit: the privacy unit: "client" (all texts of one group), or "record" (a text), which needs a reason.
      reason: why a single text may be the unit, in words; published.
      clipping_norm: the largest L2 norm of a row, > 0, chosen without looking at the rows.
      settings: mapping with sections spherical and names of a job, for settings without a parameter here.
      ledger: `Ledger`, or its path, to charge each fit to; None to spend unrecorded.
      data_name: name of the data set in the ledger.
      random_state: seed of public randomness, never of noise; an integer >= 0, a `RandomState` or None.
      verbose: see `DPKMeans`.

    Attributes:
      names_: list of names for each topic, the strongest first; empty if none stands out of the noise. After `cut`, the
        names of all merged topics, those of the largest topic first.
      cluster_centers_, noisy_sizes_, tree_, tree_sizes_, privacy_, releases_, warnings_, n_features_in_: see
        `DPKMeans`.
    """

    algorithm = Algorithm.SPHERICAL.value
    domain = None
    missing = None

    def __init__(
        self,
        n_clusters: Any,
        *,
        epsilon: float,
        delta: float,
        vocabulary: Sequence[str] | NDArray | None = None,
        width: int = 256,
        client_rows: int | None = None,
        unit: str = "client",
        reason: str | None = None,
        clipping_norm: float = 1.0,
        settings: dict[str, Any] | None = None,
        ledger: str | os.PathLike[str] | None = None,
        data_name: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.vocabulary = vocabulary
        self.width = width
        self.client_rows = client_rows
        self.unit = unit
        self.reason = reason
        self.clipping_norm = clipping_norm
        self.settings = settings
        self.ledger = ledger
        self.data_name = data_name
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike | None,
        y: object = None,
        *,
        terms: Sequence[Sequence[str]] | None = None,
        groups: ArrayLike | None = None,
        server_data: ArrayLike | None = None,
        **others: Any,
    ) -> Self:
        """Finds topics privately.

        Args:
          X: shape (n_rows, n_features), finite; private: the vectors of the texts; None to use `vectors` of the terms.
          y: ignored.
          terms: for each text, a list of its terms, strings; private; required if there is a vocabulary, else refused.
          groups: shape (n_rows,): the client of each text; see `DPKMeans.fit`.
          server_data: shape (q, n_features): public vectors from which the centers start, or None.
          others: refused; rows have no weights.

        Raises:
          ConfigError: a ValueError, if a parameter breaks its rule.
          InputError: a ValueError, if the data cannot be used.
          LedgerRefusedError: if the ledger refuses the fit, before any row is read.
        """
        if (terms is None) != (self.vocabulary is None):
            raise InputError(
                "terms is required with a vocabulary; give the words of each text, as in terms=[text.split() for "
                "text in texts], or leave the vocabulary out."
                if terms is None
                else "terms isn't supported without a vocabulary; give the public words that may be names."
            )
        # Terms may be iterators, which can be read only once.
        self._terms = None if terms is None else _listed(terms)
        try:
            if X is None:
                X = self._encoded(_listed(()) if self._terms is None else self._terms)
            if self._terms is not None and len(self._terms) != len(X):  # type: ignore[arg-type]
                raise InputError("terms must have one list for each row of X, got another number; correct them.")
            super().fit(X, y, groups=groups, server_data=server_data, **others)
        finally:
            del self._terms
        config = self._job(Place(rows="X", server=None, features="x", client_id=None if groups is None else "groups"))
        named = protocol_of(config.algorithm).names(config, self.releases_)
        every = range(len(self.cluster_centers_))
        self._names = [[] if named is None else [named.terms[row] for row in named.of(index)] for index in every]
        self.names_ = self._names
        return self

    def _merge(self, groups: "GroupedCenters") -> None:
        super()._merge(groups)
        self.names_ = groups.names(self._names)

    def vectors(self, terms: Sequence[Sequence[str]]) -> NDArray[np.float64]:
        """Computes vectors of texts from their terms, like `encode` of kind terms; as private as the terms.

        Args:
          terms: for each text, a list of its terms, strings; distinct ones in the vocabulary count.

        Returns:
          Shape (n_texts, width), of length 1: the default of `X` in `fit`, and the input of `predict` for new texts.

        Raises:
          ConfigError: a ValueError, if the vocabulary or the width breaks its rule.
          InputError: a ValueError, if terms aren't lists of strings.
        """
        return self._encoded(_listed(terms))

    def _encoded(self, terms: pa.Array) -> NDArray[np.float64]:
        section = Terms(words=self._words, width=self.width)
        return Encoder.learn((_TERMS,), {_TERMS: section}).encode(pa.table({_TERMS: terms}), "terms")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Refuses to load: use `DPKMeans.load` for the folder, and read its file of names as a table."""
        raise ConfigError(
            f"DPTopics doesn't load folders, got {folder!r}; use DPKMeans.load for what save has written."
        )

    @property
    def _words(self) -> Any:
        """The vocabulary as a list; vectorizers return an array."""
        return self.vocabulary.tolist() if isinstance(self.vocabulary, np.ndarray) else self.vocabulary

    def _beside(self) -> dict[str, pa.Array]:
        return {} if self._terms is None else {_TERMS: self._terms}

    def _job(self, place: Place) -> FitConfig:
        more = self.settings or {}
        wrong = next((name for name in more if name not in _SECTIONS), None)
        if wrong is not None:
            raise ConfigError(
                f"settings must be a mapping with sections {', '.join(_SECTIONS)} only, got {wrong!r}; use a "
                "parameter instead."
            )
        named = None if self.vocabulary is None else {**more.get("names", {}), "column": _TERMS, "words": self._words}
        job: dict[str, Any] = {
            "algorithm": self.algorithm,
            "data": {
                "path": place.rows,
                "features": place.features,
                "client_id": place.client_id,
                "name": self.data_name,
            },
            "server_data": None if place.server is None else {"path": place.server},
            "n_clusters": self.n_clusters,
            "privacy": {"unit": self.unit, "epsilon": self.epsilon, "delta": self.delta},
            "clipping": {"norm": self.clipping_norm, "client_rows": self.client_rows},
            "spherical": more.get("spherical", {}),
            "names": named,
            "justification": {} if self.reason is None else {"privacy.unit": self.reason},
            "ledger": path_of(self.ledger),
            "seed": seed_of(self.random_state),
        }
        with in_parameters():
            return validated(job)


def _listed(terms: Sequence[Sequence[str]]) -> pa.Array:
    """Converts lists of strings to an Arrow array."""
    try:
        rows = [term if isinstance(term, str) else list(term) for term in terms]
        # Arrow would split a string into letters.
        if isinstance(terms, str) or any(isinstance(row, str) for row in rows):
            raise TypeError("a string")
        return pa.array(rows, pa.list_(pa.string()))
    except (TypeError, ValueError, pa.ArrowException):
        raise InputError(
            "terms must hold a list of strings for each text, got others; split texts into words."
        ) from None
