"""Wrong statements of released versions, and the runs that made them, for `dapple ledger show`."""

import dataclasses
from collections.abc import Callable, Mapping

from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT


def _has(*starts: str) -> Callable[[Charge], bool]:
    """Returns a predicate: the charge has a release in one of these rounds."""
    return lambda charge: any(str(event.get("path", "")).startswith(starts) for event in charge.events)


def _is(*jobs: str) -> Callable[[Charge], bool]:
    return lambda charge: charge.job in jobs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrongStatement:
    """A statement that was wrong; wrong values of epsilon are in `Charge.correction` instead.

    Attributes:
      versions: versions of Dapple that made it.
      made_by: returns whether a run of these versions made it, given its charge.
      says: the wrong statement, in words that follow "wrong:".
    """

    versions: tuple[str, ...]
    made_by: Callable[[Charge], bool]
    says: str


_CORRECTED = 2
"""`Charge.corrections` of the first version that makes none of the statements below."""
WRONG_STATEMENTS = (
    WrongStatement(
        versions=("0.2.0",),
        made_by=_has("spherical/names/"),
        says="names of clusters: far more than 0.05 of a run may be from noise alone",
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=_has("dp_medians/"),
        says='center_stddev of dp_medians, its "19 of 20" and the features that stand out: the noise is larger',
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=lambda charge: charge.neighboring_relation == ZEROED_OUT,
        says="report and deployment.yaml: clients add the noise, not the aggregator",
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=_has("dp_lloyd/"),
        says="deployment.yaml: it may speak of eigenvectors and public points that the run did not have",
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=_has("dp_lloyd/", "dp_medians/", "central_tree/", "feddp_kmeans/"),
        says='the report\'s check of private rows inside ranges or norm: "passed" where it could not see them',
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=_is("fit"),
        says="tree_ of estimators: SciPy refuses it as a linkage matrix",
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=_is("fit", "profile", "clustered_fl", "encode"),
        says='the label\'s "at most ... sure": it bounds how often a guess is right, not how sure one may become',
    ),
    WrongStatement(
        versions=("0.2.0",),
        made_by=_is("clustered_fl"),
        says='the label\'s "nobody but the client itself": the operator of the pipeline is trusted, too',
    ),
)


def wrong_statements(charge: Charge, versions: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the wrong statements of a run.

    Args:
      charge: charge of the run.
      versions: from the run's `reserve` entry; empty if it has none.
    """
    if charge.corrections >= _CORRECTED:
        return ()
    version = versions.get("dapple-dp", "unknown")
    return tuple(
        entry.says for entry in WRONG_STATEMENTS if version in (*entry.versions, "unknown") and entry.made_by(charge)
    )
