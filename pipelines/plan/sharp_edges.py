"""Sharp edges that apply to a job, by its settings alone."""

from collections.abc import Callable
from typing import NamedTuple

from dapple_dp.schemas.choices import ClippingRule, MaskScheme, NoiseBy, Trust
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.schemas.kmeans.tree_config import CentralTreeFit
from dapple_dp.schemas.kmeans.windows_config import WindowsFit

PAGE = "Sharp edges"
"""Title of the documentation page with the details; it isn't part of the wheel."""


class SharpEdge(NamedTuple):
    """A way in which a job may protect less than its user expects.

    Attributes:
      name: the anchor on the page is `edge-NAME`.
      applies: returns whether it applies to a job.
      sentence: advice before spending.
    """

    name: str
    applies: Callable[[FitConfig], bool]
    sentence: str

    @property
    def anchor(self) -> str:
        """Anchor on the page."""
        return f"edge-{self.name}"


def _of_clients(job: FitConfig) -> bool:
    """Returns whether the job protects whole clients."""
    return job.privacy.unit is PrivacyUnit.CLIENT


EDGES = (
    SharpEdge(
        "settings",
        lambda job: True,
        "Choose epsilon, bounds, columns and the number of clusters without looking at the private rows.",
    ),
    SharpEdge(
        "domain",
        lambda job: isinstance(job, DPLloydFit),
        "dp_lloyd.domain is public: it must not be read off the smallest and largest private value.",
    ),
    SharpEdge(
        "radius",
        lambda job: isinstance(job, CentralTreeFit),
        "tree.radius is public: it must be known without the rows, and a large one costs noise in proportion.",
    ),
    SharpEdge(
        "server-data",
        lambda job: job.server_data is not None,
        "server_data shape the output directly, so they must be rows that you may publish.",
    ),
    SharpEdge(
        "encodings",
        lambda job: bool(job.encode),
        "Vocabularies, means and stddevs of encode are published: write none that was read off the private rows.",
    ),
    SharpEdge(
        "public-rows",
        lambda job: job.data.public_rows is not None,
        "data.public_rows publishes the number of rows or clients.",
    ),
    SharpEdge(
        "again",
        lambda job: job.ledger is None,
        "Every run spends again, and without a ledger nobody adds the epsilons up.",
    ),
    SharpEdge(
        "partitions",
        lambda job: job.data.disjoint_partitions is not None,
        "Partitions are disjoint only if no privacy unit has rows in two of them, which nobody checks.",
    ),
    SharpEdge(
        "warm-start",
        lambda job: job.recurring is not None,
        "What a job starts from (recurring.previous, stream.start) must be a released fit that was not chosen by "
        "looking at private rows.",
    ),
    SharpEdge(
        "roll",
        lambda job: isinstance(job, WindowsFit) and _of_clients(job),
        "Who counted is kept in LEDGER.rolls: back it up with the ledger, and never erase or restore it alone.",
    ),
    SharpEdge(
        "key",
        lambda job: job.key_uri is not None,
        "A key at key_uri is kept: anyone who reads it, and the nonce of a run, can subtract that run's noise.",
    ),
    SharpEdge(
        "client-id",
        _of_clients,
        "A client is what data.client_id says: a person with two ids is protected as two.",
    ),
    SharpEdge(
        "records-of-clients",
        lambda job: not _of_clients(job) and job.data.client_id is not None,
        "At unit record one epsilon protects one row, and a client with m rows is protected by about m epsilons only.",
    ),
    SharpEdge(
        "private-norm",
        lambda job: job.clipping.norm is ClippingRule.PRIVATE,
        "Rows beyond the clipping norm are shortened without a warning, since even their number is private.",
    ),
    SharpEdge(
        "quality",
        lambda job: job.quality is not None,
        "A noisy cost is of clipped rows, so it is too small where many rows lie beyond the bounds.",
    ),
    SharpEdge(
        "staging",
        _of_clients,
        "A killed run leaves a private copy of the rows beside the output: see dapple tools clean.",
    ),
    SharpEdge(
        "masked-in-one-job",
        lambda job: job.trust is Trust.MASKED and not job.masked.of_parties,
        "fit with trust masked runs all roles in the same workers, whose operator could read everything.",
    ),
    SharpEdge(
        "shared-secret",
        lambda job: job.trust is Trust.MASKED and job.masked.scheme is MaskScheme.SHARED_SECRET,
        "With a shared secret any client can unmask any message that it sees.",
    ),
    SharpEdge(
        "noised-sums",
        lambda job: job.trust is Trust.MASKED and job.masked.noise_by is NoiseBy.AGGREGATOR,
        "With noise_by aggregator the aggregator must never see the releases, whose noise it knows.",
    ),
    SharpEdge(
        "noise-shares",
        lambda job: job.masked.shares is not None,
        "Split noise protects a unit of a sender that sends in any case, and counts on senders that do not collude.",
    ),
)


def edges_of(job: FitConfig) -> tuple[SharpEdge, ...]:
    """Lists the sharp edges of a job, in the order of the table."""
    return tuple(edge for edge in EDGES if edge.applies(job))
