"""The public files of a job, each read once: server rows, what encodings learn from them, and an earlier run."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig, ServerDataConfig
from dapple_dp.schemas.tables.encoded_column import read_as
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import ColumnEncoding
from dapple_dp.transforms.kmeans.protocols import protocol_of, warm_protocol
from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.tables.on_launcher import ServerDigests, ServerFiles, first_schema
from dapple_dp.transforms.tables.source import Source

if TYPE_CHECKING:
    from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
    from dapple_dp.transforms.rounds.memory_rows import PublicRows

_STAND_IN_POINTS = 300


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicFacts:
    """All that a job knows from its public files before it plans.

    Attributes:
      points: shape (q, d), feature units: server rows, or points that stand in for them.
      encoder: of its columns; None where rows are features.
      previous: the earlier run that it follows; None for a run of its own.
      server: digests of the server files; None without.
    """

    points: NDArray[np.float64]
    encoder: Encoder | None = None
    previous: "PreviousRun | None" = None
    server: ServerDigests | None = None

    @classmethod
    def of(
        cls,
        config: FitConfig,
        server: "ServerFiles | PublicRows | None",
        n_features_of: Callable[[Encoder | None], int],
    ) -> "PublicFacts":
        """Reads the earlier run, and what encodings learn.

        Args:
          config: the job, its columns by name.
          server: its server rows; None without.
          n_features_of: gives d where no server rows say it.

        Raises:
          ConfigError: if the settings don't fit the server rows or the earlier run.
          InputError: if a file can't be used.
        """
        encoder, previous = learned_encoder(config.data, config.encodings, server), None
        if config.recurring is not None:
            from dapple_dp.pipelines.kmeans.plan.previous_run import load_previous

            previous = load_previous(config.recurring.previous)
        if previous is not None and protocol_of(config.algorithm).from_centers:
            # Its server files may be none, and say nothing, not even the width.
            points = previous.model.centers
        elif server is not None:
            points = server.points(TableContract.from_config(config.data, encoder=encoder).features_only())
        else:
            points = _stand_ins(config, n_features_of(encoder))
        if previous is not None:
            previous.check(config, feature_names(config.data.features, encoder, points.shape[1]), encoder)
        digests = server.digests if isinstance(server, ServerFiles) else None
        return cls(points=points, encoder=encoder, previous=previous, server=digests)

    @property
    def n_features(self) -> int:
        """Number of coordinates of a center."""
        return self.points.shape[1]

    def fit(self, config: FitConfig) -> PublicFit:
        """The rounds of a job, from the centers of the earlier run if it starts warm; errors as of `PublicFit.of`."""
        if self.previous is None or not config.starts_warm:
            return PublicFit.of(config, self.points)
        warm = warm_protocol(config, self.previous.model.centers, self.previous.memory)
        found = PublicFit.of(config, self.points, warm)
        self.previous.check_frame(found.initial.frame)
        return found


def server_files(given: ServerDataConfig | None, data: DataConfig, source: Source | None = None) -> ServerFiles | None:
    """The server files of a job as they are now; when the private files are listed, they must be the same still.

    A path that leads to private rows now and to public ones when both are compared is refused then.
    """
    if given is None:
        return None
    files = ServerFiles.at(given.path, data.csv_form.text)
    if source is not None and source.listed is not None:
        digests = files.digests
        source.listed.check(lambda _: digests.check())
    return files


def feature_names(features: str | tuple[str, ...], encoder: Encoder | None, n_features: int) -> tuple[str, ...]:
    """Names of the coordinates of a center, `n_features` of them, for the features of a job."""
    if isinstance(features, str):
        return tuple(f"{features}[{index}]" for index in range(n_features))
    return features if encoder is None else encoder.names


def learned_encoder(
    data: DataConfig, encodings: Mapping[str, ColumnEncoding], server: "ServerFiles | PublicRows | None"
) -> Encoder | None:
    """Encoder of the `encode` section, learned from the server data where it asks for that, or of columns' bounds."""
    features, missing = data.features, data.missing
    if not (encodings or missing) or isinstance(features, str):
        return None
    if server is None or not any(encoding.needs_server for encoding in encodings.values()):
        return Encoder.learn(features, encodings, missing=missing)
    types = {name: read_as(encodings.get(name)) for name in features}
    return Encoder.learn(features, encodings, server.rows(types), server.path, missing)


def feature_count(data: DataConfig, source: Source, encoder: Encoder | None) -> int:
    """Number of coordinates of a row, where no server data say it: as the job says, or as the first file has it."""
    if not isinstance(data.features, str):
        return len(data.features) if encoder is None else encoder.n_features
    if data.width is not None:
        return data.width
    path, schema = first_schema(source)
    return TableContract.from_config(data).list_width(schema, path)


def _stand_ins(config: FitConfig, n_features: int) -> NDArray[np.float64]:
    """Points in the clipping ball, for a job without server rows."""
    n_points = max(_STAND_IN_POINTS, 30 * config.max_clusters)
    norm = config.clipping.norm
    radius = norm if isinstance(norm, float) else 1.0
    return seeding.points_in_ball(n_points, n_features, radius, config.seed or 0)
