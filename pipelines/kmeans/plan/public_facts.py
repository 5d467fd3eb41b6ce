"""Public inputs of a job, each read once: server rows, encodings learned from them, and an earlier run."""

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
    """Facts from the public files of a job, read before it is planned.

    Attributes:
      points: shape (q, d), feature units: server rows, or stand-ins for them.
      encoder: encoder of the columns; None if rows are features.
      previous: earlier run that the job follows; None if it follows none.
      server: digests of the server files; None without any.
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
        """Reads the earlier run and learns the encodings.

        Args:
          config: the job, with columns by name.
          server: server rows of the job; None without any.
          n_features_of: returns d if there are no server rows.

        Raises:
          ConfigError: if the settings don't fit the server rows or the earlier run.
          InputError: if a file can't be used.
        """
        encoder, previous = learned_encoder(config.data, config.encodings, server), None
        if config.recurring is not None:
            from dapple_dp.pipelines.kmeans.plan.previous_run import load_previous

            previous = load_previous(config.recurring.previous)
        if previous is not None and protocol_of(config.algorithm).from_centers:
            # There may be no server files, so take the points and their width from the earlier run.
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
        """Plans the rounds of a job, from the earlier run's centers for a warm start; raises like `PublicFit.of`."""
        if self.previous is None or not config.starts_warm:
            return PublicFit.of(config, self.points)
        warm = warm_protocol(config, self.previous.model.centers, self.previous.memory)
        found = PublicFit.of(config, self.points, warm)
        self.previous.check_frame(found.initial.frame)
        return found


def server_files(given: ServerDataConfig | None, data: DataConfig, source: Source | None = None) -> ServerFiles | None:
    """Opens the server files of a job, and verifies that listed private files haven't changed meanwhile.

    Refuses a path that led to private rows at the listing and leads to public ones now.
    """
    if given is None:
        return None
    files = ServerFiles.at(given.path, data.csv_form.text)
    if source is not None and source.listed is not None:
        digests = files.digests
        source.listed.check(lambda _: digests.check())
    return files


def feature_names(features: str | tuple[str, ...], encoder: Encoder | None, n_features: int) -> tuple[str, ...]:
    """Names of a center's `n_features` coordinates, from the features of a job."""
    if isinstance(features, str):
        return tuple(f"{features}[{index}]" for index in range(n_features))
    return features if encoder is None else encoder.names


def learned_encoder(
    data: DataConfig, encodings: Mapping[str, ColumnEncoding], server: "ServerFiles | PublicRows | None"
) -> Encoder | None:
    """Encoder of the `encode` section, learned from server data or from the bounds of columns."""
    features, missing = data.features, data.missing
    if not (encodings or missing) or isinstance(features, str):
        return None
    if server is None or not any(encoding.needs_server for encoding in encodings.values()):
        return Encoder.learn(features, encodings, missing=missing)
    types = {name: read_as(encodings.get(name)) for name in features}
    return Encoder.learn(features, encodings, server.rows(types), server.path, missing)


def feature_count(data: DataConfig, source: Source, encoder: Encoder | None) -> int:
    """Number of coordinates of a row without server data, from the settings or the first file."""
    if not isinstance(data.features, str):
        return len(data.features) if encoder is None else encoder.n_features
    if data.width is not None:
        return data.width
    path, schema = first_schema(source)
    return TableContract.from_config(data).list_width(schema, path)


def _stand_ins(config: FitConfig, n_features: int) -> NDArray[np.float64]:
    """Draws points in the clipping ball, for a job without server rows."""
    n_points = max(_STAND_IN_POINTS, 30 * config.max_clusters)
    norm = config.clipping.norm
    radius = norm if isinstance(norm, float) else 1.0
    return seeding.points_in_ball(n_points, n_features, radius, config.seed or 0)
