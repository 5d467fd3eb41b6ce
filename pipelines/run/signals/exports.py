"""Where numbers of a command go: a text file for Prometheus, and a private file for its operator.

The text file holds what is the same for every input, unless someone asks for the rest. The operator's file holds all.
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
"""What the operator's file is called, after the output that it stands beside."""


class Wanted(NamedTuple):
    """What a command was asked to report, and where.

    Attributes:
      metrics: path of the text file on a local disk; empty for none, and for no operator's file.
      private: whether the text file and lineage show what depends on rows, too.
      lineage: a URL, or the path of a file; empty for none.
    """

    metrics: str = ""
    private: bool = False
    lineage: str = ""


class Exports:
    """The files of a command."""

    def __init__(self) -> None:
        self.wanted = Wanted()
        self._beside = ""

    @contextlib.contextmanager
    def of_command(self, wanted: Wanted) -> Iterator[None]:
        """While a command works; `ended` says how it ended."""
        before = self.wanted, self._beside
        self.wanted, self._beside = wanted, ""
        try:
            with MEASURES.command(self._write if wanted.metrics else None):
                yield
        finally:
            self.wanted, self._beside = before

    def beside(self, output: str) -> None:
        """Where the command writes; of several outputs the first counts."""
        if output and "://" not in output and not self._beside:
            self._beside = os.path.abspath(output)

    def ended(self, code: int) -> None:
        """Writes both files for the last time, with the exit code."""
        if self.wanted.metrics:
            self._write(code)

    @property
    def operators_file(self) -> str:
        """Beside the staging folder; if that is on a store, where nobody can say who reads it, beside the metrics."""
        place = self._beside if self._beside and os.path.isdir(os.path.dirname(self._beside)) else self.wanted.metrics
        return f"{place}{OPERATOR}"

    def _write(self, code: int | None = None) -> None:
        text = prometheus_text(MEASURES.runs, MEASURES.total, code, private=self.wanted.private)
        content = json.dumps(with_number(_for_operator(code)), indent=2)
        try:
            _put(self.wanted.metrics, text, 0o666)
            _put(self.operators_file, f"{content}\n", 0o600)
        except OSError as error:
            # The run does not depend on it.
            _LOGGER.warning("warning: metrics could not be written to %s: %s", self.wanted.metrics, error.strerror)


EXPORTS = Exports()
"""Of this process."""


def prometheus_text(
    runs: list[RunMeasures], samples: Mapping[Sample, float], code: int | None, *, private: bool
) -> str:
    """Numbers in the text format of Prometheus, by name.

    Args:
      runs: of the command, the outermost one last.
      samples: of all of them together.
      code: the exit code; None while the command works.
      private: whether numbers that depend on rows are shown.
    """
    job, run_id = (runs[-1].job, runs[-1].run_id) if runs and code is not None else _outermost(runs)
    about = {"job": job, "run_id": run_id, "version": version(DISTRIBUTION)}
    lines = [*_head("dapple_run_info", Kind.GAUGE, "The run."), f"dapple_run_info{_labels(about)} 1"]
    if code is not None:
        lines += [*_head("dapple_exit_code", Kind.GAUGE, "How the command ended."), f"dapple_exit_code {code}"]
    shown = sorted((metric, label) for metric, label in samples if private or not metric.private)
    told: Metric | None = None
    for metric, label in shown:
        if metric != told:
            lines += _head(metric.name, metric.kind, metric.help)
            told = metric
        labels = _labels({metric.label: label}) if metric.label else ""
        lines.append(f"{metric.name}{labels} {_number(samples[metric, label])}")
    return "\n".join(lines) + "\n"


def _outermost(runs: list[RunMeasures]) -> tuple[str, str]:
    """The run that is under way, around others."""
    found = next((each for each in runs if each.ended is None), None)
    return ("", "") if found is None else (found.job, found.run_id)


def _head(name: str, kind: Kind, help: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _labels(values: Mapping[str, str]) -> str:
    quoted = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values.values())
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(values, quoted, strict=True)) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _for_operator(code: int | None) -> dict[str, Any]:
    """All that is known: of each run, and of what the command did besides."""
    outside = _plain(MEASURES.outside.samples)
    return {"written": int(time.time()), "exit_code": code, "runs": [_run(each) for each in MEASURES.runs]} | outside


def _run(found: RunMeasures) -> dict[str, Any]:
    times = {"started": found.started, "ended": found.ended}
    return {"job": found.job, "run_id": found.run_id, **times, "notes": found.notes, **_plain(found.samples)}


def _plain(samples: Mapping[Sample, float]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (metric, label), value in samples.items():
        if metric.label:
            found.setdefault(metric.name, {})[label] = value
        else:
            found[metric.name] = value
    return found


def _put(path: str, content: str, mode: int) -> None:
    """Puts a whole file in place of what is there; nobody reads half of one.

    The numbers are gone with the machine, so nothing is flushed.
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
