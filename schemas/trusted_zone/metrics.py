"""Scores of an evaluation; computed from exact rows, so they are as private as these."""

import dataclasses
import json
from typing import Any, Self

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.format_number import NAME, check_number, with_number
from dapple_dp.schemas.settings.json_schema import check_content, parse_as
from dapple_dp.schemas.settings.refusal import Refusal

METRICS_FILE = "metrics.json"
NOT_PRIVATE = {"private": False, "label": "evaluation (not private)"}
NOT_PRIVATE_METADATA = {f"dapple.{name}": json.dumps(value) for name, value in NOT_PRIVATE.items()}
"""`NOT_PRIVATE` as key-value metadata of a Parquet file."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """Scores for the separation of clusters; None if a score is undefined or wasn't requested.

    Attributes:
      davies_bouldin: >= 0, lower is better.
      calinski_harabasz: >= 0, higher is better.
      silhouette: in [-1, 1], higher is better; computed on a sample of rows.
      silhouette_rows: size of that sample.
    """

    davies_bouldin: float | None
    calinski_harabasz: float | None
    silhouette: float | None
    silhouette_rows: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClassAgreement:
    """Agreement of clusters with a column of classes.

    Attributes:
      adjusted_rand: at most 1, about 0 for a random clustering.
      fowlkes_mallows: in [0, 1].
      labelled_rows: rows with a class; other rows are ignored here.
    """

    adjusted_rand: float
    fowlkes_mallows: float
    labelled_rows: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceMatch:
    """Distance of centers to those of a reference, matched one to one.

    Attributes:
      centroid_mse: mean squared distance of matched centers, feature units squared; None if it exceeds float64.
      matched_centers: number of pairs.
    """

    centroid_mse: float | None
    matched_centers: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Scores of a model on a data set.

    Attributes:
      n_rows: number of valid rows, at least one.
      cost: mean squared distance of a row to its nearest center, feature units squared; None if it exceeds float64.
      cluster_sizes: rows per cluster.
      separation: scores for the separation of clusters.
      classes: agreement with classes; None without such a column.
      reference: distance to the centers of a reference; None without one.
    """

    n_rows: int
    cost: float | None
    cluster_sizes: tuple[int, ...]
    separation: Separation
    classes: ClassAgreement | None = None
    reference: ReferenceMatch | None = None

    @property
    def nicv(self) -> float | None:
        """Normalized intra-cluster variance, which equals the cost; papers report it for data in [-1, 1]."""
        return self.cost

    def to_json(self) -> str:
        """Returns the text of `metrics.json`: one flat object, without sections that weren't requested."""
        content: dict[str, Any] = NOT_PRIVATE | {"nicv": self.nicv}
        for name, value in dataclasses.asdict(self).items():
            content |= value if isinstance(value, dict) else {} if value is None and name != "cost" else {name: value}
        return json.dumps(with_number(content), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Inverse of `to_json`.

        Raises:
          InputError: if it is other text.
        """
        rule = f"{METRICS_FILE} must be the file that this run wrote"
        refusal = Refusal(kind=InputError, rule=rule, remedy="run the job again")
        content = parse_as(text, dict[str, Any], refusal)
        with refusal.covers():
            check_number(content.pop(NAME, None))
            parts: dict[str, Any] = {"separation": content}
            parts |= {"classes": content} if "adjusted_rand" in content else {}
            parts |= {"reference": content} if "centroid_mse" in content else {}
            return check_content(content | parts, cls)
