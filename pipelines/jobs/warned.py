"""The number of warnings that a run's report shows, taken from its manifest."""

import logging
from typing import Any

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.pipelines.run.folder import MANIFEST, REPORT_FILE
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import ReportManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)


def with_warnings(summary: dict[str, Any], forewarned: tuple[str, ...] | None) -> dict[str, Any]:
    """Adds the number of warnings to a run's summary, and logs it if it isn't 0.

    Args:
      summary: summary of a finished job; if it names the output, the manifest there is read.
      forewarned: warnings logged before the job ran, the only ones without a report; None for a job that never warns.

    Returns:
      The summary with `warnings`: None if the report or its manifest is unusable, missing for a job that never warns.
    """
    known: dict[str, int | None] = {} if forewarned is None else {"warnings": len(forewarned)}
    if "output" in summary and "warnings" not in summary:
        of_report = _of_report(join(summary["output"], MANIFEST))
        log_warnings(of_report.get("warnings"))
        known |= of_report
    return known | summary


def log_warnings(number: int | None) -> None:
    """Logs how many warnings a report shows, if there are any."""
    if number:
        _LOGGER.warning("the report has %s: read it before you trust the result", plural(number, "warning"))


def total_warnings(numbers: list[int | None]) -> int | None:
    """Sums the warnings of several reports; None if one of them is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _of_report(path: str) -> dict[str, int | None]:
    """Reads the number of warnings from a manifest; {} without a manifest or a report."""
    refusal = Refusal(kind=InputError, rule=f"{path} must be a manifest", remedy="run again")
    try:
        found = untrusted.read_json(path, ReportManifest, refusal) if STORE.exists(path) else None
    except Exception as error:  # noqa: BLE001 - the run is published and paid
        _LOGGER.warning("the number of warnings could not be read: %s", describe_unexpected(error))
        return {"warnings": None}
    return {"warnings": found.warnings} if found is not None and REPORT_FILE in found.files else {}
