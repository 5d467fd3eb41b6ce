"""The parts of the manifests (`run.json`) of earlier runs that jobs use; the rest is for people."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from dapple_dp.schemas.settings.json_schema import NumberedContent, OpenContent

CENTERS_FILE = "centers.parquet"
RELEASES_FILE = "releases.parquet"
RELEASED_FILES = (CENTERS_FILE, RELEASES_FILE)
FileName = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_][A-Za-z0-9_.=-]*$", max_length=512)
]
"""Relative path of a file within the folder of the manifest; never absolute, and never outside of it."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal."""


class RunManifest(NumberedContent):
    """Files of a run with their digests."""

    files: dict[FileName, Digest]


class ModelManifest(RunManifest):
    """The manifest of a run that wrote a model."""

    features: Annotated[list[str], Field(min_length=1)]
    encoding: list[dict[str, Any]] | None


class CollectionManifest(NumberedContent):
    """The manifest of reports."""

    parameters_digest: Digest


class WindowManifest(NumberedContent):
    """The manifest of a window: the run and the digests of its files."""

    run_id: str


class ChargedManifest(NumberedContent):
    """The manifest of a run that was charged to a ledger."""

    run_id: str
    config_digest: Digest


class ReportManifest(RunManifest):
    """The manifest of a run that may have a report, with the number of warnings in it; None if unknown."""

    warnings: Annotated[int, Field(ge=0)] | None = None


class Spent(NumberedContent):
    """The spent budget in a privacy statement."""

    epsilon: Annotated[float, Field(gt=0.0)]
    delta: Annotated[float, Field(ge=0.0, lt=1.0)]


class ShuffledManifest(CollectionManifest, RunManifest):
    """The manifest of shuffled reports."""

    shuffled: bool


class _ClusterNumbers(OpenContent):
    """The numbering of a run's clusters."""

    released_rows: list[Annotated[int, Field(ge=0)]]
    next_number: Annotated[int, Field(ge=0, lt=1 << 31)]


class _PublicFrame(OpenContent):
    clipping_norm: Annotated[float, Field(gt=0.0)]
    domain: Annotated[list[Any], Field(min_length=2, max_length=2)] | None
    center: list[float]


def _has_weights(epoch: dict[str, Any]) -> dict[str, Any]:
    weights, index = epoch.get("weights"), epoch.get("index")
    if not (isinstance(weights, list) and weights and all(type(weight) is int and weight > 0 for weight in weights)):
        raise ValueError("weights must be positive integers")
    if type(index) is not int or not 0 <= index < 1 << 16:
        raise ValueError("the index must be that of a window")
    return epoch


class PreviousManifest(ModelManifest):
    """The manifest of a run that a recurring run may follow."""

    run_id: str
    clusters: _ClusterNumbers
    frame: _PublicFrame | None
    epoch: Annotated[dict[str, Any], AfterValidator(_has_weights)] | None = None


class PrivacyFile(NumberedContent):
    """The part of `privacy.json` that a recurring run uses."""

    unit: str


class _AskedPrivacy(OpenContent):
    """The privacy settings of a job."""

    unit: str
    epsilon: Annotated[float, Field(gt=0.0)]
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]


class _AskedMasks(OpenContent):
    """The setting for who adds noise to masked sums."""

    noise_by: str


class AskedFit(OpenContent):
    """The settings of a fit that determine its privacy accounting."""

    privacy: _AskedPrivacy
    trust: str
    masked: _AskedMasks

    @property
    def noised_twice(self) -> bool:
        """True if two parties added noise to released sums; the accounting counts that of one."""
        return (self.trust, self.masked.noise_by) == ("masked", "both")

    @property
    def noise_is_split(self) -> bool:
        """True if everyone present added a noise share to released sums; the accounting counts only some shares."""
        return (self.trust, self.masked.noise_by) == ("masked", "clients")


class _LedgerState(OpenContent):
    """The state of the ledger that a run saw."""

    head: Digest


class VerifiedManifest(RunManifest):
    """The manifest of a run whose folder is verified."""

    run_id: str
    manifest_digest: Digest
    algorithm: str | None = None
    settings: AskedFit | None = None
    ledger: _LedgerState | None = None


class AccountFile(PrivacyFile):
    """The guarantee in `privacy.json`, which verification composes again."""

    epsilon: Annotated[float, Field(gt=0.0)]
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    events: list[dict[str, Any]]
