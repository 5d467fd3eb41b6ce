"""Jobs as transforms of Beam YAML, with plain arguments and rows as output.

A fit, an encoding and a decoding stay separate jobs: each reads its files itself, has its own graph checked, charges
its ledger, and writes its folder, so no step of the surrounding pipeline can come between a row and its bounds. Only
`DappleAssign` reads the pipeline's rows, and its output stays in the trusted zone.
"""

import importlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.ml.inference.base import PredictionResult, RunInference
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_fields_from_element_type

from dapple_dp.integrations.model_handler import DappleModelHandler
from dapple_dp.pipelines.command.words import WORDS
from dapple_dp.pipelines.jobs.run_job import run_job
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.pipelines.run.folder import MANIFEST
from dapple_dp.schemas.errors import ConfigError, DappleError, RunnerError
from dapple_dp.schemas.reports.rows import REPORTS_FOLDER
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.json_schema import NumberedContent
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE
from dapple_dp.schemas.trusted_zone.job_configs import CLUSTER
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.files.untrusted import TableForm


class Center(NamedTuple):
    """A released center, as in `centers.parquet`."""

    cluster: int
    center: Sequence[float]
    noisy_size: float


class ReportsFolder(NamedTuple):
    """Place of the reports of a run."""

    path: str
    run_id: str


class _RunName(NumberedContent):
    """The part of a manifest that identifies a run."""

    run_id: str
    config_digest: str


class _JobFn(beam.DoFn):
    """Runs a job, unless the same run is complete."""

    def __init__(self, word: str, settings: str, output: str, run_id: str, flags: Sequence[str]):
        self._word = word
        self._settings = settings
        self._output = output
        self._run_id = run_id
        self._flags = tuple(flags)

    def process(self, _: object) -> Iterable[Any]:
        """Returns rows of the output; a second attempt finds the run of the first and draws no noise."""
        try:
            if not self._is_complete():
                self._run()
            return self._rows()
        except DappleError:
            raise
        except Exception as error:  # noqa: BLE001 - its message may hold a value
            raise RunnerError(describe_unexpected(error)) from None

    def _is_complete(self) -> bool:
        path = join(self._output, MANIFEST)
        if not STORE.exists(path):
            return False
        rule = f"output must be new, or hold run {self._run_id} of the same settings"
        refusal = Refusal(kind=ConfigError, rule=rule, remedy="choose another output and another run_id")
        existing = untrusted.read_json(path, _RunName, refusal)
        wanted = (self._run_id, config_digest(WORDS[self._word].loaded(self._settings)))
        if (existing.run_id, existing.config_digest) != wanted:
            raise refusal.because(f"another run in {self._output}")
        return True

    def _run(self) -> None:
        job = importlib.import_module(WORDS[self._word].module).JOB
        with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
            config = os.path.join(folder, "job.yaml")
            write_bytes(config, self._settings.encode())
            words = ("--config", config, "--output", self._output, "--run_id", self._run_id)
            run_job(job, [*words, *self._flags])

    def _rows(self) -> list[Any]:
        if self._word == "encode":
            return [ReportsFolder(join(self._output, REPORTS_FOLDER), self._run_id)]
        path = join(self._output, CENTERS_FILE)
        table = untrusted.read_table(path, untrusted.staged_refusal(path), TableForm.by_size()).select(Center._fields)
        return [Center(**row) for row in table.to_pylist()]


class _JobTransform(beam.PTransform):
    """A job that runs once, after its input, if any, is complete. Cost: that of the job, beside the pipeline."""

    _yaml_requires_inputs = False
    _word: str
    _kind: type = Center

    def __init__(self, settings: Mapping[str, Any], output: str, run_id: str, flags: Sequence[str] = ()):
        super().__init__()
        text = yaml_text.render(_plain(settings))
        WORDS[self._word].loaded(text)
        self._step = _JobFn(self._word, text, output, run_id, flags)

    def expand(self, before: Any) -> beam.PCollection:
        """Waits, runs the job, and returns rows of its output; `before` is a pipeline, or rows to wait for."""
        if isinstance(before, beam.PCollection):
            start = before | "Wait" >> beam.combiners.Count.Globally()
        else:
            start = before | "Start" >> beam.Create([0])
        return start | "Run" >> beam.ParDo(self._step).with_output_types(self._kind)


class DappleFit(_JobTransform):
    """Clusters a table privately, like `dapple fit`; the output is released, and consists of `Center` rows.

    Args:
      settings: settings of the job, as in its YAML file, with paths as the workers see them.
      output: folder for the job's files, on any Beam filesystem.
      run_id: name of the run. A retry of the same run spends nothing; other settings need another run_id and output.
      flags: flags for the job's own runner, in the worker that starts it; empty for the built-in one.

    Raises:
      ConfigError: if the settings aren't those of a fit.
    """

    _word = "fit"


class DappleEncodeReports(_JobTransform):
    """Creates one private report per client, like `dapple reports encode`; the output is a row of `ReportsFolder`.

    Args:
      settings: see `DappleFit`.
      output: see `DappleFit`.
      run_id: see `DappleFit`.
      flags: see `DappleFit`.
    """

    _word = "encode"
    _kind = ReportsFolder


class DappleDecodeReports(_JobTransform):
    """Computes centers from private reports, like `dapple reports decode`; the output consists of `Center` rows.

    Args:
      settings: see `DappleFit`.
      output: see `DappleFit`.
      run_id: see `DappleFit`.
      flags: see `DappleFit`.
    """

    _word = "decode"


class DappleAssign(beam.PTransform):
    """Adds the number of its nearest center to each row. Not private: keep the output in the trusted zone.

    Args:
      model: output folder of a fit; it must exist when the pipeline is built.
      on_invalid_rows: "fail", or "drop" to set the column to null in invalid rows.
      into: name of the new column, an int64 or null.

    Raises:
      ConfigError: if the folder isn't that of a fit, or the rows have such a column already.
    """

    def __init__(self, model: str, on_invalid_rows: str = "fail", into: str = CLUSTER):
        super().__init__()
        self._handler = DappleModelHandler(model, on_invalid_rows=on_invalid_rows)
        self._into = into

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        """Adds the column; rows need a schema."""
        fields = list(named_fields_from_element_type(rows.element_type))
        if self._into in dict(fields):
            raise ConfigError(
                f"into must be a new column, got {self._into!r}, which the rows already have; choose another name."
            )
        kind = RowTypeConstraint.from_fields([*fields, (self._into, beam.typehints.Optional[int])])
        added = beam.Map(_with_cluster, self._into).with_output_types(kind)
        return rows | "Infer" >> RunInference(self._handler) | "Add" >> added


def _with_cluster(result: PredictionResult, into: str) -> beam.Row:
    return beam.Row(**result.example._asdict(), **{into: result.inference})


def _plain(value: Any) -> Any:
    """Converts settings to plain data from the classes that YAML readers create."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if not str(key).startswith("__")}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return next((kind(value) for kind in (str, bool, int, float) if isinstance(value, kind)), value)
