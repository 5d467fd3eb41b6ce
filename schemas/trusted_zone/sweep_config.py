"""Settings of a `sweep` job: those of a fit, and a section `sweep` that lists how to vary them."""

import copy
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import SETTINGS, FitConfig, is_pooled, validated
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig, validated_pooled
from dapple_dp.schemas.settings import rejection, tiers, yaml_text
from dapple_dp.schemas.settings.digest import content_of
from dapple_dp.schemas.settings.section import Count, Epsilon, Scalar, Section, Text, Whole, python_scalar

_SHARED = (
    *("path", "partitions", "table", "csv", "client_id", "features", "on_invalid_rows", "max_rows_per_client", "name"),
)
"""Settings of `data` that all cells share, since they read the same shards."""
_VARIED = ("privacy.epsilon", "seed")
"""Settings that `epsilons` and `seeds` vary."""


def _seeds(value: object) -> object:
    """Validates seeds; an integer n is short for 0, 1, ..., n - 1."""
    value = python_scalar(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(value))
    return _distinct(value, "an integer >= 1 or a list of distinct seeds")


def _distinct(value: object, rule: str = "a non-empty list without duplicates") -> object:
    """Validates a non-empty list without duplicates and returns it as a tuple."""
    if not isinstance(value, list | tuple) or not value:
        raise rejection.broken_rule(rule)
    if any(item in value[:index] for index, item in enumerate(value)):
        raise rejection.broken_rule(rule)
    return tuple(value)


class SweepScores(Section):
    """Scores of every cell in addition to its cost."""

    label: Text | None = Field(
        default=None, description="a column of classes (strings, integers or booleans) to compare with, or leave it out"
    )
    silhouette_rows: Annotated[int, Field(strict=True, ge=0, le=20_000), Scalar] = Field(
        default=2000, description="the number of rows to sample for the silhouette, an integer from 0 to 20000"
    )


class SweepOptions(Section):
    """The varied settings."""

    methods: dict[Text, dict[str, Any]] = Field(
        description="a mapping of names to settings of a fit that replace the job's own", min_length=1
    )
    epsilons: Annotated[tuple[Epsilon, ...], BeforeValidator(_distinct)] = Field(
        description="a list of epsilons, finite numbers > 0"
    )
    seeds: Annotated[tuple[Whole, ...], BeforeValidator(_seeds, json_schema_input_type=int | list[int])] = Field(
        description="the number of seeds, or a list of them"
    )
    settings: dict[Text, Annotated[tuple[Any, ...], BeforeValidator(_distinct)]] = Field(
        default_factory=dict,
        description="a mapping of dotted settings (such as lloyd.steps) to lists of values, or leave it out",
    )
    cells_per_pipeline: Count = Field(
        default=500, description="how many cells run at once, an integer >= 1; each such part is resumable"
    )
    evaluate: SweepScores | None = Field(
        default=None, description="a section of scores beyond the cost, which may be empty, or leave it out"
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """One run of a sweep.

    Attributes:
      method: name of the method in `methods`.
      epsilon: None for a method without privacy.
      seed: seed of public randomness.
      settings: varied settings with their values, in order.
      config: settings of the fit.
    """

    method: str
    epsilon: float | None
    seed: int
    settings: tuple[tuple[str, Any], ...]
    config: FitConfig | PooledFitConfig

    @property
    def digest(self) -> str:
        """SHA-256 of the cell's name and job, 64 hex digits."""
        content = [self.method, content_of(self.config)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def settings_text(self) -> str:
        """`settings` in one line, such as `lloyd.steps=1`; empty if nothing is varied."""
        return ", ".join(f"{name}={value}" for name, value in self.settings)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """A `sweep` job: `cells` in the order of methods, settings, epsilons, seeds."""

    options: SweepOptions
    cells: tuple[SweepCell, ...]

    @property
    def ledger(self) -> str | None:
        """Path or URL of the ledger that all private cells charge; None without one."""
        return _ledger(self.cells)

    @property
    def experimental(self) -> bool:
        """True if one of the methods may use unsupported settings."""
        return any(cell.config.experimental for cell in self.cells)

    @property
    def digest(self) -> str:
        """SHA-256 of all cells and of the requested scores, 64 hex digits."""
        scored = "" if self.options.evaluate is None else self.options.evaluate.model_dump_json()
        return hashlib.sha256(("".join(cell.digest for cell in self.cells) + scored).encode()).hexdigest()


def load_sweep_config(text: str) -> SweepConfig:
    """Parses a job from YAML text; raises ConfigError like `sweep_config`, or if the text isn't YAML."""
    return sweep_config(yaml_text.parse(text))


def sweep_config(settings: object) -> SweepConfig:
    """Validates plain data, with every cell, and returns the job.

    Raises:
      ConfigError: one sentence about the first wrong setting, with the name of the method.
    """
    if not isinstance(settings, Mapping) or "sweep" not in settings:
        raise ConfigError("sweep is required; add a section with methods, epsilons and seeds.")
    options = rejection.check_config(SweepOptions, settings["sweep"], within="sweep")
    base = {name: value for name, value in settings.items() if name != "sweep"}
    tiers.check(options, base.get("experimental") is True)
    _check_varied(options)
    cells = tuple(_cells(base, options))
    _check_shared(cells)
    _check_own(cells)
    _check_scored(cells, options)
    return SweepConfig(options=options, cells=cells)


def _check_varied(options: SweepOptions) -> None:
    """Refuses settings that `epsilons` and `seeds` would overwrite, which would make those columns wrong."""
    places = [("sweep.settings", options.settings)]
    places += [(f"sweep.methods.{method}", changes) for method, changes in options.methods.items()]
    for place, given in places:
        for name in _VARIED:
            if name in given or _holds(given, name):
                raise ConfigError(f"{place} must not hold {name}; list its values under sweep.epsilons or sweep.seeds.")


def _cells(base: Mapping[str, Any], options: SweepOptions) -> Iterator[SweepCell]:
    """Yields all combinations; methods without privacy have no epsilon, and only the settings that they read."""
    for method, changes in options.methods.items():
        job = merged(base, changes)
        names = tuple(name for name in options.settings if not is_pooled(job) or _is_pooled_setting(name))
        for values in itertools.product(*(options.settings[name] for name in names)):
            varied = tuple(zip(names, values, strict=True))
            for epsilon in (None,) if is_pooled(job) else options.epsilons:
                for seed in options.seeds:
                    yield _cell(method, job, epsilon, seed, varied)


def _cell(
    method: str, job: dict[str, Any], epsilon: float | None, seed: int, varied: tuple[tuple[str, Any], ...]
) -> SweepCell:
    """Validates one run; with epsilon None, a run without privacy."""
    for name, value in varied:
        job = merged(job, _nested(name, value))
    job["seed"] = seed
    config: FitConfig | PooledFitConfig
    try:
        if epsilon is None:
            config = validated_pooled(_without_privacy(job))
        else:
            config = validated(merged(job, {"privacy": {"epsilon": epsilon}}))
    except ConfigError as error:
        raise ConfigError(f"sweep.methods.{method}: {error}") from error
    return SweepCell(method=method, epsilon=epsilon, seed=seed, settings=varied, config=config)


def _without_privacy(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that a run without privacy reads."""
    return {name: value for name, value in job.items() if _is_pooled_setting(name)}


def _is_pooled_setting(name: str) -> bool:
    """Returns whether a job without privacy reads or must refuse a setting; settings of private runs are skipped."""
    head = name.partition(".")[0]
    return head in PooledFitConfig.model_fields or head not in SETTINGS


def _of_columns(cell: SweepCell) -> str | None:
    """Returns a cell's method if its columns have separate bounds, which other methods don't support; else None."""
    section = getattr(cell.config, "dp_lloyd", None)
    return cell.method if section is not None and section.by_column else None


def _check_shared(cells: tuple[SweepCell, ...]) -> None:
    """Refuses cells that can't read the same shards, and a table that may change between parts of the sweep."""
    table = cells[0].config.data.table
    if table is not None and table.version is None:
        raise ConfigError("data.table.version is required for a sweep; name the snapshot that all its parts read.")
    if cells[0].config.data.has_patterns:
        raise ConfigError(
            "data.features must name every column in a sweep, got a pattern; write the columns that it stands for."
        )
    for cell in cells:
        for name in _SHARED:
            if getattr(cell.config.data, name) != getattr(cells[0].config.data, name):
                raise ConfigError(
                    f"data.{name} must be the same in all methods of a sweep, got another value in {cell.method}; "
                    "run that method in a separate sweep."
                )
        if isinstance(cell.config, FitConfig) and cell.config.ledger != _ledger(cells):
            raise ConfigError(
                f"ledger must be the same in all methods of a sweep, got another value in {cell.method}; give it once."
            )
        if cell.config.encodings != cells[0].config.encodings:
            columns = _of_columns(cell) or _of_columns(cells[0])
            raise ConfigError(
                "dp_lloyd.domain must be one interval if the methods of a sweep differ, got one for each column in "
                f"{columns}; write domain: [-1, 1], and encode.COLUMN: {{kind: bounds, to: symmetric}} with the "
                "bounds."
                if columns
                else f"encode must be the same in all methods of a sweep, got another value in {cell.method}; run that "
                "method in a separate sweep."
            )


def _ledger(cells: tuple[SweepCell, ...]) -> str | None:
    return next((cell.config.ledger for cell in cells if isinstance(cell.config, FitConfig)), None)


def _check_own(cells: tuple[SweepCell, ...]) -> None:
    """Refuses settings that cells can't have individually, and two identical cells."""
    digests: set[str] = set()
    for cell in cells:
        if getattr(cell.config, "key_uri", None):
            raise ConfigError(
                f"key_uri isn't supported for a sweep, got it in {cell.method}; leave it out, since a sweep makes "
                "its own keys and copies, and deletes them after use."
            )
        if getattr(cell.config, "names", None) is not None:
            raise ConfigError(
                f"names isn't supported for a sweep, got it in {cell.method}; leave it out, since a sweep compares "
                "centers and reads no terms."
            )
        if isinstance(cell.config, FitConfig) and cell.config.trust is not Trust.CENTRAL:
            raise ConfigError(
                f"trust must be central in a sweep, got {cell.config.trust} in {cell.method}; "
                "leave it out: one trusted job reads the rows of a sweep."
            )
        if cell.digest in digests:
            raise ConfigError(
                f"sweep.settings must lead to different jobs, got the same one twice for {cell.method}; remove one."
            )
        digests.add(cell.digest)


def _check_scored(cells: tuple[SweepCell, ...], options: SweepOptions) -> None:
    """Refuses scores for rows that are copied by client: such copies have no ranks and no other columns."""
    for cell in cells if options.evaluate is not None else ():
        if _by_client(cell.config):
            raise ConfigError(
                f"sweep.evaluate isn't supported for methods that need whole clients, such as {cell.method}; run "
                "those in a separate sweep, and evaluate the models."
            )


def _by_client(config: FitConfig | PooledFitConfig) -> bool:
    """Returns whether a run reads all rows of a client together."""
    whole = not isinstance(config, PooledFitConfig) and config.privacy.unit is PrivacyUnit.CLIENT
    return whole or config.data.max_rows_per_client is not None


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `base` updated by `changes`, section by section.

    Example:
      >>> merged({"lloyd": {"steps": 1, "share": 0.5}}, {"lloyd": {"steps": 2}})
      {'lloyd': {'steps': 2, 'share': 0.5}}
    """
    result = copy.deepcopy(dict(base))
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
        result[name] = merged(result[name], value) if both else copy.deepcopy(value)
    return result


def _holds(settings: Mapping[str, Any], name: str) -> bool:
    """Returns whether nested settings have a value for a dotted name."""
    head, _, rest = name.partition(".")
    if head not in settings or not rest:
        return head in settings
    return isinstance(settings[head], Mapping) and _holds(settings[head], rest)


def _nested(name: str, value: Any) -> dict[str, Any]:
    """Returns `{"a": {"b": value}}` for "a.b"."""
    head, _, rest = name.partition(".")
    return {head: _nested(rest, value) if rest else value}
