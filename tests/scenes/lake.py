"""Small lakes for tests that run whole jobs: data, files, configs, keys, and what a run released."""

import contextlib
import dataclasses
import io
import json
import logging
import os
import pathlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.command.words import spelled
from dapple_dp.pipelines.kmeans.fit import execute, read_release
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit, plan_files
from dapple_dp.pipelines.run import run_keys
from dapple_dp.pipelines.run.failures import original_error
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import FitConfig, of_kind, validated
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.privacy.key_files import read_key
from dapple_dp.transforms.tables.source import Source

MEANS = 5.0 * np.eye(3, 4)
"""Well separated cluster means, shape (3, 4)."""
KEY = bytes(range(101, 133))


class Outcome(NamedTuple):
    """Result and output of the command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


def mixture(n_rows: int, seed: int = 0, means: NDArray[np.float64] = MEANS) -> NDArray[np.float64]:
    """Rows around the means in turn, stddev 0.5, shape (n_rows, n_features)."""
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, means.shape[1]))
    return means[np.arange(n_rows) % len(means)] + noise


def table_of(
    points: NDArray[np.floating], clients: Sequence[int] | NDArray[np.int64] | None = None, *, codes: bool = False
) -> pa.Table:
    """A list column `x`, `client_id` if there are clients, and if asked a number `a` and codes `b` and `c`."""
    flat = pa.array(np.ascontiguousarray(points).ravel())
    columns = {"x": pa.FixedSizeListArray.from_arrays(flat, points.shape[1])}
    if codes:
        words = (np.array(["x", "y", "z"])[np.abs(np.floor(column)).astype(int) % 3] for column in points.T[1:3])
        columns |= {"a": pa.array(points[:, 0]), **dict(zip("bc", map(pa.array, words), strict=True))}
    return pa.table(columns if clients is None else columns | {"client_id": pa.array(clients)})


def write_files(folder: pathlib.Path, tables: Sequence[pa.Table], row_group_size: int | None = None) -> str:
    """One Parquet file per table; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{index:02d}.parquet", row_group_size=row_group_size)
    return str(folder)


def write_lake(
    folder: pathlib.Path,
    points: NDArray[np.floating],
    clients: NDArray[np.int64] | None = None,
    *,
    n_files: int = 1,
    row_group_size: int | None = None,
    shuffle: int | None = None,
    codes: bool = False,
) -> str:
    """The same rows in any layout, a client never in two files.

    Args:
      folder: new.
      points: shape (n_rows, n_features).
      clients: shape (n_rows,); row groups cut no client if its rows divide `row_group_size`.
      n_files: number of Parquet files.
      row_group_size: rows; None for one row group per file.
      shuffle: seed that reorders clients, files, and rows inside their row group; None keeps every order.
      codes: adds columns of a number and of codes.
    """
    owners = np.arange(len(points)) if clients is None else clients
    rng = np.random.default_rng(shuffle)
    ids = np.unique(owners) if shuffle is None else rng.permutation(np.unique(owners))
    parts = [np.concatenate([np.flatnonzero(owners == each) for each in part]) for part in np.array_split(ids, n_files)]
    if shuffle is not None:
        parts = [_shuffled(parts[index], row_group_size or len(points), rng) for index in rng.permutation(n_files)]
    tables = [table_of(points[rows], None if clients is None else clients[rows], codes=codes) for rows in parts]
    return write_files(folder, tables, row_group_size)


def _shuffled(rows: NDArray[np.int64], window: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows in another order inside every window."""
    return np.concatenate([rng.permutation(rows[start : start + window]) for start in range(0, len(rows), window)])


def write_server(path: pathlib.Path, points: NDArray[np.floating] | None = None) -> str:
    """Public rows as one file, by default a mixture like the private data."""
    pq.write_table(table_of(mixture(60, seed=99) if points is None else points), path)
    return str(path)


def write_key(path: pathlib.Path, key: bytes = KEY, mode: int = 0o600) -> str:
    """A run key that the test knows."""
    path.write_bytes(key)
    os.chmod(path, mode)
    return str(path)


_RUN_PLACE, _CHECK_HELD_KEYS, _RUN_KEY = run_keys.run_place, run_keys.check_held_keys, run_keys.run_key


@contextlib.contextmanager
def written_keys_draw() -> Iterator[None]:
    """The keys that a test writes are those that draw, in every run, so that it can say what is released."""
    with mock.patch.multiple(run_keys, run_place=lambda uri, *_: uri, check_held_keys=lambda _: None, run_key=_key_at):
        yield


def _key_at(place: str) -> loop.RunKey:
    return loop.RunKey(read_key(place))


@contextlib.contextmanager
def keys_of_runs() -> Iterator[None]:
    """Takes `written_keys_draw` back: what draws is derived for every run, as outside of tests."""
    with mock.patch.multiple(run_keys, run_place=_RUN_PLACE, check_held_keys=_CHECK_HELD_KEYS, run_key=_RUN_KEY):
        yield


def job(data: str, server: str | None, unit: str = "record", **settings: Any) -> dict[str, Any]:
    """A job as plain data; `name` in `settings` is a whole value, `section__name` one value of a section."""
    found: dict[str, Any] = {
        "experimental": True,
        "algorithm": "feddp_kmeans",
        "data": {"path": data, "features": "x"},
        "server_data": {"path": server} if server else "none",
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": 2.0, "delta": 1e-6},
        "clipping": {"norm": "server_radius"} if server else {"norm": 10.0, "center": "none"},
        "feddp_kmeans": {"restarts": 20},
    }
    if unit == "client":
        found["data"]["client_id"] = "client_id"
        found["clipping"]["client_rows"] = 10
    for name, value in settings.items():
        section, _, key = name.rpartition("__")
        (found.setdefault(section, {}) if section else found)[key] = value
    return found


def packed(steps: int) -> dict[str, Any]:
    """What `job` changes for a small job of so many rounds, each of sums and counts, from public centers in a box."""
    rounds = {"domain": [-8, 8], "init": "sphere_packing", "steps": steps}
    clipping = {"clipping__norm": "domain", "clipping__center": "none"}
    return {"algorithm": "dp_lloyd", "dp_lloyd": rounds, "lloyd": {}, **clipping}


def fit_of(settings: Mapping[str, Any]) -> FitConfig:
    """The job of a fit, or of a window as streams write it."""
    return of_kind(WindowsFit, settings) if settings["algorithm"] == "windows" else validated(settings)


def planned(settings: dict[str, Any]) -> PlannedFit:
    """The job, ready to run."""
    return plan_files(fit_of(settings))


def staged(source: Source, folder: str | pathlib.Path) -> Source:
    """A source as graphs can read it, its listing in a folder of the test."""
    listed = source.listed or private_source(SimpleNamespace(data=DataConfig(path=source.path, features="x"))).listed
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    listing = listed.files.write(str(place / f"{secrets.token_hex(4)}.files"))
    return dataclasses.replace(source, files=None, listed=None, listing=listing, sampled=listed.files.sampled)


def ready(settings: dict[str, Any], folder: str | pathlib.Path) -> PlannedFit:
    """The job, ready for a graph that a test builds itself."""
    fit = planned(settings)
    return dataclasses.replace(fit, source=staged(fit.source, folder))


def run_unchecked(build: Callable[[beam.Pipeline], None], options: PipelineOptions) -> None:
    """Runs a graph with steps of a test's own, which the privacy-flow checker would refuse."""
    pipeline = beam.Pipeline(options=options)
    try:
        with threadpool_limits(limits=1):
            build(pipeline)
            pipeline.run().wait_until_finish()
    except Exception as error:
        raise original_error(error) or error from error


def run_fit(settings: dict[str, Any], folder: pathlib.Path, *flags: str) -> FitResult:
    """Runs a job without the command; its released files are in `folder`."""
    folder.mkdir()
    fit = planned(settings)
    return read_release(fit, str(folder), execute(fit, beam_options([*flags, *_engine(flags, settings)]), str(folder)))


def released(folder: str | pathlib.Path) -> dict[str, bytes]:
    """The released files of a run, byte for byte."""
    return {name: (pathlib.Path(folder) / name).read_bytes() for name in RELEASED_FILES}


def chain(fit: PlannedFit, block: ClientBlock, key: bytes = KEY) -> MeansState:
    """The state after the rounds on one block, without Beam."""
    return loop.simulate(fit.initial, fit.rounds, [block], key).states[-1]


def assert_same(found: Any, expected: Any) -> None:
    """Two models are the same to the last bit, and so are their releases."""
    np.testing.assert_array_equal(found.centers, expected.centers)
    np.testing.assert_array_equal(found.noisy_sizes, expected.noisy_sizes)
    assert [each.path for each in found.releases] == [each.path for each in expected.releases]
    for one, other in zip(found.releases, expected.releases, strict=True):
        assert one.lattice_unit == other.lattice_unit
        np.testing.assert_array_equal(one.values, other.values)


def finished(fit: PlannedFit, block: ClientBlock, key: bytes = KEY) -> FitResult:
    """Returns what a run of the job on one block returns, without Beam."""
    return FitResult(chain(fit, block, key).model(), fit.statement, "0" * 64)


_in_process = False
_BEAM_FLAGS = ("--runner", "--direct_", "--cores", "--cache_megabytes")
_IN_A_STORE = re.compile(r"\w://")


@contextlib.contextmanager
def without_beam() -> Iterator[None]:
    """Jobs that `run_command` and `run_fit` start meanwhile run in one process, if they can and name no runner."""
    global _in_process
    before, _in_process = _in_process, True
    try:
        yield
    finally:
        _in_process = before


def _engine(words: Sequence[str], settings: Any) -> tuple[str, ...]:
    """The flag that a job gets besides its words."""
    named = any(word.startswith(_BEAM_FLAGS) for word in words)
    return ("--runner=InProcess",) if _in_process and not named and _needs_no_beam(settings) else ()


def _needs_no_beam(settings: Any) -> bool:
    """True for fits that can run in one process: private, of local files, not under masks and not after another run."""
    if not isinstance(settings, dict) or "privacy" not in settings or settings.get("recurring"):
        return False
    return settings.get("trust", "central") == "central" and not _IN_A_STORE.search(json.dumps(settings, default=str))


def _settings_of(words: Sequence[str]) -> Any:
    """The settings of a fit; None of other commands, and where there are none."""
    if not words or words[0] not in ("fit", "topics") or "--config" not in words[:-1]:
        return None
    try:
        return yaml.safe_load(pathlib.Path(words[words.index("--config") + 1]).read_text())
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


def with_engine(words: Sequence[str]) -> list[str]:
    """Words of a command, which `without_beam` gives the flag of a runner if they start a job that can run so."""
    return [*words, *_engine(words, _settings_of(words))]


def run_command(*words: str) -> Outcome:
    """The `dapple` command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with _logging_restored(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.main([*spelled(words[0]).split(), *with_engine(words)[1:]] if words else [])
    return Outcome(code, out.getvalue(), err.getvalue())


def run_job(settings: dict[str, Any] | str, folder: pathlib.Path, *flags: str) -> Outcome:
    """`dapple fit` of a job, as plain data or as YAML text, from `folder`/job.yaml to `folder`/out."""
    text = settings if isinstance(settings, str) else yaml.safe_dump(settings)
    (folder / "job.yaml").write_text(text)
    return run_command("fit", "--config", str(folder / "job.yaml"), "--output", str(folder / "out"), *flags)


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """The command sets up logging for its process; tests take that back."""
    loggers = [logging.getLogger(name) for name in (None, "dapple_dp", "apache_beam")]
    before = [(logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate
            logger.handlers[:] = handlers
