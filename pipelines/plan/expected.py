"""`dapple plan`: the releases, cost and privacy spending of a private fit, computed without a private row.

It reads the job, its public server data, the release that it follows and the ledger. Names of private files are
compared with those of public ones, but their rows, row counts and statistics aren't read. If `data.features` has
patterns, column names are read from the first private file, as in the fit itself.
"""

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.jobs.forewarnings import forewarnings
from dapple_dp.pipelines.kmeans.plan.public_facts import PublicFacts, feature_names, server_files
from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit, statement_of
from dapple_dp.pipelines.ledger.remaining import Budget, next_window
from dapple_dp.pipelines.ledger.spending import charge_of
from dapple_dp.pipelines.plan import plan_words
from dapple_dp.pipelines.plan.sharp_edges import edges_of
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import check_public, private_source
from dapple_dp.schemas.core.plan import PrivacyUnit, ReleasePlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.core.unit import UNITS, unit_of
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, is_pooled, validated
from dapple_dp.schemas.kmeans.jobs.stream_config import in_stream_words, stream_config
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.meaning import Role, meaning_of
from dapple_dp.schemas.privacy.statement import odds
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.tiers import unsupported
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.core.statistics.frame import Box
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.kmeans.simulated_fit import DRAWS, MOST_ROWS, SimulatedFit, probed_units
from dapple_dp.transforms.kmeans.windows.rounds import column_of
from dapple_dp.transforms.numerics.kmeans.centers import released_as
from dapple_dp.transforms.numerics.kmeans.recurring.windows import remembered_noise
from dapple_dp.transforms.tables.on_launcher import ServerFiles

if TYPE_CHECKING:
    from dapple_dp.transforms.rounds.memory_rows import PublicRows

ASSUMED_UNITS = 100_000
_SEARCH = (0.01, 20.0)
"""Range of epsilons to search."""
_SEARCH_STEPS = 9
_SEARCH_DRAWS = 3
_BYTES = 8
_Ends = NDArray[np.float64]
_FOUND = 4.0
"""A cluster of this many noise stddevs is above two of them in 19 of 20 runs; reports mark smaller ones as possibly
empty."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """A simulated job before it spends anything.

    Attributes:
      config: the job.
      public: facts from its public files.
      n_units: assumed number of rows (of clients for privacy unit client).
      fit: calibrated rounds of the job.
      simulated: simulated runs.
    """

    config: FitConfig
    public: PublicFacts
    n_units: int
    fit: PublicFit
    simulated: SimulatedFit

    @classmethod
    def of(cls, config: FitConfig, given: SimpleNamespace) -> "Expected":
        """Plans and simulates a job; raises the errors that the job itself would raise before it reads rows."""
        check_stores(config)
        n_units = _assumed(config, given)
        config = with_features(config)
        _compare(config)
        server = server_files(config.server_data, config.data)
        return cls._of(config, n_units, server, lambda encoder: _width(config.data, encoder, given))

    @classmethod
    def in_memory(cls, config: FitConfig, n_units: int, width: int, server: "PublicRows | None") -> "Expected":
        """Plans and simulates a job for this many columns and units in memory, without its private rows."""
        check_stores(config)
        config = with_features(config)
        return cls._of(config, n_units, server, lambda encoder: width if encoder is None else encoder.n_features)

    @classmethod
    def _of(
        cls,
        config: FitConfig,
        n_units: int,
        rows: "ServerFiles | PublicRows | None",
        width: Callable[[Encoder | None], int],
    ) -> "Expected":
        public = PublicFacts.of(config, rows, width)
        fit = public.fit(config)
        simulated = fit.simulated(config, public.points, n_units)
        return cls(config=config, public=public, n_units=n_units, fit=fit, simulated=simulated)

    def at(self, epsilon: float, draws: int = DRAWS) -> "Expected":
        """Simulates the same job at another epsilon; raises ConfigError if the lattice can't hold the noise."""
        privacy = self.config.privacy.model_copy(update={"epsilon": epsilon})
        config = self.config.model_copy(update={"privacy": privacy})
        fit = self.public.fit(config)
        simulated = fit.simulated(config, self.public.points, self.n_units, draws=draws)
        return dataclasses.replace(self, config=config, fit=fit, simulated=simulated)

    @property
    def unit_word(self) -> str:
        """Plural noun for the counted units."""
        return UNITS[self.config.privacy.unit].words

    @property
    def excess(self) -> float:
        """Relative increase of the mean cost by noise; infinite if the cost without noise is 0."""
        best = self.simulated.without_noise
        return self.simulated.mean / best - 1.0 if best > 0.0 else float("inf")

    @property
    def releases(self) -> tuple[Release, ...]:
        """Releases of a simulated run: shapes and noise as planned, values from public rows."""
        return self.simulated.model.releases

    @property
    def center_noise(self) -> float | None:
        """Noise stddev of a center coordinate for an average cluster, feature units; None if no round sums rows."""
        sums = released_as(self.releases, Role.CLUSTER_SUMS)
        return None if sums is None else sums.stddev * self.config.max_clusters / self.n_units

    @property
    def size_noise(self) -> float | None:
        """Noise stddev of a size, in rows or clients; None if sizes are sums over leaves of a tree."""
        stddev = self.simulated.model.size_stddev
        return None if np.isnan(stddev) else stddev

    def charge(self) -> Charge:
        """Charge of the run, or of the next window of a stream."""
        fit, config = self.fit, self.config
        if isinstance(config, WindowsFit):
            config = _next_window(config)
        return charge_of(statement_of(config, fit.plan, fit.chosen), config.data, "fit", fit.plan.rounds)

    @property
    def warnings(self) -> list[str]:
        """Warnings from the settings and the simulation."""
        found, units = list(forewarnings(self.config) or ()), self.unit_word
        delta, average = self.config.privacy.delta, self.n_units / self.config.max_clusters
        if delta > 1.0 / self.n_units and self.config.data.public_rows is None:
            found.append(f"delta {delta:.3g} is larger than 1 / the assumed number of {units} ({self.n_units:,})")
        if self.size_noise is not None and average < 4.0 * self.size_noise:
            found.append(
                f"an average cluster has {average:.4g} {units}, and the noise of a size is {self.size_noise:.3g}"
            )
        if self.excess > 1.0:
            found.append("noise more than doubles the cost: take a larger epsilon, fewer clusters or more rows")
        if self.config.server_data is None:
            found.append(
                "the cost is of made-up clusters inside the public bounds: it shows noise, not what your data cost"
            )
        return found + self._clipped()

    def _clipped(self) -> list[str]:
        """Warns if many public rows are longer than the clipping norm."""
        lattice = self.fit.initial.frame.lattice
        if self.config.server_data is None:
            return []
        share = float((np.linalg.norm(self.public.points - lattice.center, axis=1) > lattice.clipping_norm).mean())
        return [f"{share:.0%} of the server rows are longer than the clipping norm"] if share > 0.1 else []

    @property
    def smallest_cluster(self) -> float | None:
        """Units that distinguish a cluster from an empty one; None if sizes have no known noise."""
        return None if self.size_noise is None else _FOUND * self.size_noise

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON, without the ledger."""
        plan, simulated = self.fit.plan, self.simulated
        edges = [{"anchor": each.anchor, "sentence": each.sentence} for each in edges_of(self.config)]
        rows = len(self.public.points) if self.config.server_data is not None else None
        counted = [release for each in plan.rounds for release in each.releases]
        return (
            {
                "algorithm": str(self.config.algorithm),
                "unit": str(self.config.privacy.unit),
                "epsilon": plan.epsilon,
                "delta": plan.delta,
                "assumed": self.n_units,
                "releases": [_release_json(*each) for each in zip(counted, self.releases, self._fixed, strict=True)],
                "center_noise": self.center_noise,
                "unknown_noise": protocol_of(self.config.algorithm).unknown_noise,
                "size_noise": self.size_noise,
                "smallest_cluster": self.smallest_cluster,
                "columns": against_bounds(self),
                "found_from": protocol_of(self.config.algorithm).found_from(self.config, plan, self.public.n_features),
                "encoded": self.public.encoder is not None,
                "cost": {"mean": simulated.mean, "stddev": simulated.spread, "without_noise": simulated.without_noise},
                "simulated_on": "stand-in rows" if rows is None else "server data",
                "seconds": simulated.seconds * max(1.0, self._rows / MOST_ROWS),
                "statistic_bytes": _BYTES * max(each.size for each in plan.rounds),
                "warnings": self.warnings,
                "beyond": [each._asdict() for each in unsupported(self.config)],
                "sharp_edges": edges,
            }
            | self._shares_json()
            | ({} if self.fit.chosen is None else {"chosen": self.fit.chosen})
        )

    @property
    def _fixed(self) -> list[bool]:
        """Flags for releases whose noise is known in advance; releases after moved groups have unknown bounds."""
        units = np.concatenate([self.simulated.units, probed_units(self.fit.initial, self.fit.rounds)])
        fixed = (units == units[0]).all(axis=0)
        moving = (index for index, each in enumerate(self.releases) if meaning_of(each.plan.spec).role is Role.GROUPS)
        fixed[next(moving, len(fixed)) + 1 :] = False
        return list(map(bool, fixed))

    def _shares_json(self) -> dict[str, Any]:
        """Variance of split noise relative to the planned one; {} if clients don't split it."""
        shares = self.config.masked.shares
        if shares is None:
            return {}
        found: dict[str, Any] = {"threshold": shares.threshold, "dropout": shares.dropout}
        if (factors := shares.factors()) is not None:
            found |= dict(zip(("nobody_gone", "most_gone"), factors, strict=True))
        return {"shares": found}

    @property
    def _rows(self) -> float:
        return float(self.n_units * unit_of(self.config.privacy.unit, self.config.clipping.client_rows).rows)


def against_bounds(expected: Expected) -> list[dict[str, Any]]:
    """Compares the noise of a center coordinate with its column's bounds, for an average cluster, in column units.

    Returns:
      A record with column, noise, lower and upper for each feature with bounds; empty if no noise is known in advance.
    """
    noise, frame, encoder = expected.center_noise, expected.fit.initial.frame, expected.public.encoder
    if noise is None:
        return []
    n_features = len(frame.lattice.center)
    names = feature_names(expected.config.data.features, encoder, n_features)
    low, high, scale = _ends(encoder, frame.box, n_features)
    return [
        {"column": name, "noise": noise * step, "lower": lower, "upper": upper}
        for name, step, lower, upper in zip(names, scale.tolist(), low.tolist(), high.tolist(), strict=True)
        if math.isfinite(upper - lower)
    ]


def _ends(encoder: Encoder | None, box: Box | None, n_features: int) -> tuple[_Ends, _Ends, _Ends]:
    """Bounds of each feature in the unit of its column, and the length of a feature's step there."""
    ends = np.array([[-np.inf], [np.inf]]) * np.ones(n_features)
    if box is not None:
        ends = np.array([[box.low], [box.high]]) * np.ones(n_features)
    if encoder is None:
        return ends[0], ends[1], np.ones(n_features)
    own = np.stack(encoder.bounds)
    known = np.isfinite(own).all(axis=0) & ~encoder.in_percent
    finite = np.where(known, own, np.array([[0.0], [1.0]]))
    shown = encoder.decoded(finite)
    scale = (shown[1] - shown[0]) / (finite[1] - finite[0])
    return np.where(known, shown[0], -np.inf), np.where(known, shown[1], np.inf), scale


def at_epsilons(expected: Expected, epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Compares the same job at other epsilons, ascending: spending, cost, and room in the ledger.

    Args:
      expected: the job, simulated.
      epsilons: epsilons, each > 0.

    Returns:
      A record for each epsilon; with the sentence `refused` if the lattice can't hold the noise. `odds` is the largest
      probability of a right guess by someone who gives even odds to a unit's presence and knows all others.
    """
    return [_at(expected, epsilon) for epsilon in sorted(set(epsilons))]


def _at(expected: Expected, epsilon: float) -> dict[str, Any]:
    try:
        other = expected.at(epsilon)
    except ConfigError as error:
        return {"epsilon": epsilon, "refused": str(error)}
    ledger = other.config.ledger
    budget = None if ledger is None else Budget.of(ledger, other.charge())
    columns = against_bounds(other)
    shares = [column["noise"] / (column["upper"] - column["lower"]) for column in columns]
    return {
        "epsilon": epsilon,
        "cost": other.simulated.mean,
        "excess": other.excess if math.isfinite(other.excess) else None,
        "size_noise": other.size_noise,
        "smallest_cluster": other.smallest_cluster,
        "odds": odds(other.fit.plan.epsilon, other.fit.plan.delta),
        "center_noise": other.center_noise,
        "columns": columns,
        "share_of_bounds": max(shares, default=None),
        "fits": None if budget is None else not budget.refused,
    }


def run(given: SimpleNamespace) -> dict[str, Any]:
    """Runs the command; returns the summary that is printed last.

    Raises:
      DappleError: if the plan fails.
    """
    from dapple_dp.pipelines.run.options import beam_options

    beam_options([])
    config, words = _config(given.config)
    with words:
        expected = Expected.of(config, given)
    summary = {"config": given.config} | expected.to_json()
    if isinstance(config, WindowsFit):
        summary["stream"] = _stream_json(config)
        summary["warnings"] += _stream_warnings(summary["stream"])
    summary["ledger"] = None if config.ledger is None else Budget.of(config.ledger, expected.charge())._asdict()
    if given.accuracy is not None:
        summary["accuracy"] = {"asked": given.accuracy, "epsilon": _needed_epsilon(expected, given.accuracy)}
    if given.epsilons is not None:
        summary["epsilons"] = at_epsilons(expected, given.epsilons)
    sys.stdout.write(plan_words.text(summary))
    return summary


def _needed_epsilon(expected: Expected, accuracy: float) -> float | None:
    """Smallest epsilon at which noise adds at most a given share to the cost, to about ten percent.

    Args:
      expected: the job, simulated.
      accuracy: the share, >= 0.

    Returns:
      None if no epsilon up to 20 does; then the settings are the problem, or there are too few rows.
    """
    low, high = _SEARCH
    if not _reaches(expected, high, accuracy):
        return None
    for _ in range(_SEARCH_STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if _reaches(expected, middle, accuracy) else (middle, high)
    return float(f"{high:.3g}")


def _reaches(expected: Expected, epsilon: float, accuracy: float) -> bool:
    """Returns whether simulated runs at this epsilon are accurate enough; False if the lattice can't hold the noise."""
    try:
        return expected.at(epsilon, _SEARCH_DRAWS).excess <= accuracy
    except ConfigError:
        return False


def _config(path: str) -> tuple[FitConfig, contextlib.AbstractContextManager[None]]:
    """Loads a private fit, or a stream's first window; also returns a context that words errors accordingly."""
    from dapple_dp.pipelines.run.options import read_text

    settings = yaml_text.parse(read_text(path))
    if is_pooled(settings):
        raise ConfigError("the job has no privacy, so there is nothing to plan: it spends nothing. Run it.")
    if isinstance(settings, Mapping) and "stream" in settings:
        return stream_config(settings).template, in_stream_words()
    return validated(settings), contextlib.nullcontext()  # type: ignore[arg-type]


def _next_window(config: WindowsFit) -> WindowsFit:
    """The first window that the ledger has not charged, or the last one at the end of the epoch."""
    if config.ledger is None:
        return config
    following = next_window(config.ledger, str(config.data.name), config.epoch.name)
    return config.at(min(following, config.epoch.windows - 1))


def _compare(config: FitConfig) -> None:
    """Refuses public data that are private ones, if these exist; a table without a log has no files."""
    try:
        source = private_source(config)
    except InputError:
        return
    check_public(source)


def _assumed(config: FitConfig, given: SimpleNamespace) -> int:
    """Assumed number of privacy units, from the flag, the job, or a round default; never from the data."""
    flag = UNITS[config.privacy.unit].words
    for other in {unit.words for unit in UNITS.values()} - {flag}:
        if getattr(given, other) is not None:
            raise ConfigError(
                f"--{other} must be left out for privacy.unit {config.privacy.unit}, got {getattr(given, other)}; give "
                f"--{flag}."
            )
    asked = getattr(given, flag)
    if asked is not None:
        return int(asked)
    known = None if config.plan is None else config.plan.assumed_rows
    return known or config.data.public_rows or ASSUMED_UNITS


def _width(data: DataConfig, encoder: Encoder | None, given: SimpleNamespace) -> int:
    """Number of features if no public data define it; doesn't read private files."""
    if not isinstance(data.features, str):
        return len(data.features) if encoder is None else encoder.n_features
    if data.feature_names is not None:
        return len(data.feature_names)
    if given.width is None or given.width < 1:
        raise ConfigError(
            f"--width must be the number of features in the list column {data.features}, an integer >= 1, got "
            f"{given.width}; give it, or data.feature_names in the job."
        )
    return int(given.width)


def _release_json(counted: ReleasePlan, release: Release, is_fixed: bool) -> dict[str, Any]:
    """A planned release as JSON: the multiplier that is accounted for, and the noise that is drawn.

    `fixed` is false if the noise depends on releases of earlier rounds.
    """
    stddev = release.stddev
    return {
        "path": release.path,
        "tells": meaning_of(release.plan.spec).tells,
        "quantity": str(meaning_of(release.plan.spec).quantity),
        "shape": list(release.plan.spec.shape),
        "mechanism": str(release.plan.spec.mechanism),
        "noise_multiplier": counted.noise_multiplier,
        "noise_stddev": stddev if np.isfinite(stddev) else None,
        "fixed": is_fixed,
    }


def _stream_json(config: WindowsFit) -> dict[str, Any]:
    """Relative noise of remembered counts, for noise of stddev 1 at sensitivity 1 and one unit per window.

    A memory alone pays for every window in which a unit appears, with independent noise. Two habits of units are
    compared: they appear in every window, or exactly where the contract counts them.

    Args:
      config: a window of the epoch.
    """
    epoch, length = config.epoch, config.recurring.memory
    windows, times = epoch.windows, epoch.times
    share = unit_of(config.privacy.unit).share(min(1.0 / epoch.separation, times / windows))
    own = remembered_noise(config.weights, column_of(config), length, windows) / share

    def alone(counted: int, part: float) -> float:
        return remembered_noise((1,), (1,) * counted, length, windows) / part

    habits = {"as the contract allows": {"stream": own, "memory alone": alone(times, share)}}
    by_client = config.privacy.unit is PrivacyUnit.CLIENT
    if by_client:
        habits = {"in every window": {"stream": own, "memory alone": alone(windows, 1.0)}} | habits
    return {
        "windows": windows,
        "counted": times,
        "apart": epoch.separation if by_client else None,
        "band": epoch.band,
        "reach": len(config.weights),
        "noise": habits,
    }


def _stream_warnings(found: dict[str, Any]) -> list[str]:
    """Warns if a memory alone, or a shorter band, would have less noise."""
    warnings = []
    for habit, noise in found["noise"].items():
        if noise["memory alone"] < noise["stream"]:
            warnings.append(
                f"for clients that come {habit}, a fit with recurring.memory {found['windows']} times has less noise "
                f"at the same epsilon: {noise['memory alone']:.3g} against {noise['stream']:.3g}, and counts all of "
                "them"
            )
    if found["apart"] is not None and found["apart"] < found["reach"] and found["counted"] > 1:
        warnings.append(
            f"stream.band {found['band']} is above stream.min_separation {found['apart']}, so windows of one client "
            "meet in a release, which needs more noise: try a smaller band"
        )
    return warnings
