"""Exports of a command's metrics: a text file for Prometheus, and a private file for the operator.

The text file holds only numbers that are the same for every input, unless private ones are asked for. The operator's
file holds everything.
"""

import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dapple_dp.pipelines.run.versions import version
from dapple_dp.schemas.errors import DISTRIBUTION
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.transforms.files.signals.measures import MEASURES, Kind, Metric, RunMeasures, Sample

_LOGGER = logging.getLogger(__name__)
OPERATOR = ".operator.json"
"""Suffix of the operator's file, after the name of the output next to it."""


class Wanted(NamedTuple):
    """Exports requested by a command's flags.

    Attributes:
      metrics: local path of the text file; empty for neither text file nor operator's file.
      private: whether the text file and lineage include numbers that depend on rows.
      lineage: URL or path of a file; empty for none.
    """

    metrics: str = ""
    private: bool = False
    lineage: str = ""


class Exports:
    """Export files of a command."""

    def __init__(self) -> None:
        self.wanted = Wanted()
        self._beside = ""

    @contextlib.contextmanager
    def of_command(self, wanted: Wanted) -> Iterator[None]:
        """Exports the metrics of a running command; `ended` adds the exit code."""
        before = self.wanted, self._beside
        self.wanted, self._beside = wanted, ""
        try:
            with MEASURES.command(self._write if wanted.metrics else None):
                yield
        finally:
            self.wanted, self._beside = before

    def beside(self, output: str) -> None:
        """Sets the output next to which the operator's file is written; only the first one counts."""
        if output and "://" not in output and not self._beside:
            self._beside = os.path.abspath(output)

    def ended(self, code: int) -> None:
        """Writes both files a last time, with the exit code."""
        if self.wanted.metrics:
            self._write(code)

    @property
    def operators_file(self) -> str:
        """Path next to the staging folder, or next to the metrics if the output is on a store with unknown readers."""
        place = self._beside if self._beside and os.path.isdir(os.path.dirname(self._beside)) else self.wanted.metrics
        return f"{place}{OPERATOR}"

    def _write(self, code: int | None = None) -> None:
        text = prometheus_text(MEASURES.runs, MEASURES.total, code, private=self.wanted.private)
        content = json.dumps(with_number(_for_operator(code)), indent=2)
        try:
            _put(self.wanted.metrics, text, 0o666)
            _put(self.operators_file, f"{content}\n", 0o600)
        except OSError as error:
            # A failed export must not stop the run.
            _LOGGER.warning("warning: metrics could not be written to %s: %s", self.wanted.metrics, error.strerror)


EXPORTS = Exports()
"""Exports of this process."""


def prometheus_text(
    runs: list[RunMeasures], samples: Mapping[Sample, float], code: int | None, *, private: bool
) -> str:
    """Formats metrics as text for Prometheus, sorted by name.

    Args:
      runs: runs of the command, the outermost one last.
      samples: samples of all runs together.
      code: exit code; None while the command runs.
      private: whether to include numbers that depend on rows.
    """
    job, run_id = (runs[-1].job, runs[-1].run_id) if runs and code is not None else _outermost(runs)
    about = {"job": job, "run_id": run_id, "version": version(DISTRIBUTION)}
    lines = [*_head("dapple_run_info", Kind.GAUGE, "The run."), f"dapple_run_info{_labels(about)} 1"]
    if code is not None:
        lines += [*_head("dapple_exit_code", Kind.GAUGE, "How the command ended."), f"dapple_exit_code {code}"]
    shown = sorted((metric, label) for metric, label in samples if private or not metric.private)
    previous: Metric | None = None
    for metric, label in shown:
        if metric != previous:
            lines += _head(metric.name, metric.kind, metric.help)
            previous = metric
        labels = _labels({metric.label: label}) if metric.label else ""
        lines.append(f"{metric.name}{labels} {_number(samples[metric, label])}")
    return "\n".join(lines) + "\n"


def _outermost(runs: list[RunMeasures]) -> tuple[str, str]:
    """Job and id of the outermost run in progress."""
    found = next((run for run in runs if run.ended is None), None)
    return ("", "") if found is None else (found.job, found.run_id)


def _head(name: str, kind: Kind, help: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _labels(values: Mapping[str, str]) -> str:
    quoted = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values.values())
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(values, quoted, strict=True)) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _for_operator(code: int | None) -> dict[str, Any]:
    """All metrics: those of each run, and those outside of runs."""
    outside = _plain(MEASURES.outside.samples)
    return {"written": int(time.time()), "exit_code": code, "runs": [_run(run) for run in MEASURES.runs]} | outside


def _run(found: RunMeasures) -> dict[str, Any]:
    times = {"started": found.started, "ended": found.ended}
    return {"job": found.job, "run_id": found.run_id, **times, "notes": found.notes, **_plain(found.samples)}


def _plain(samples: Mapping[Sample, float]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for (metric, label), value in samples.items():
        if metric.label:
            result.setdefault(metric.name, {})[label] = value
        else:
            result[metric.name] = value
    return result


def _put(path: str, content: str, mode: int) -> None:
    """Replaces a file atomically, so that no reader sees half of it.

    It isn't flushed, since the metrics don't need to survive a crash of the machine.
    """
    made = f"{path}.{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(made, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
