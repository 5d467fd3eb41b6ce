"""How many warnings a run has: those that its page shows, counted there for everybody who says how many.

A page says its number in its head. Whatever else says one, the last line of a job or its log, reads it there.
"""

import logging
import re
from typing import Any

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files import gate
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)
META = "dapple-warnings"
"""Name of the element in the head of a page that holds the number."""
_NUMBER = re.compile(rf'<meta name="{META}" content="(\d+)">')
_PAGE = "report.html"


def with_warnings(summary: dict[str, Any], forewarned: tuple[str, ...] | None) -> dict[str, Any]:
    """A summary with the number of warnings of its run, which the log says, too, if there are some.

    Args:
      summary: of a job that is done; if it names its output, then the page there is asked.
      forewarned: what was said before the job ran: its only warnings if it draws no page; None if it says none.

    Returns:
      The summary with `warnings`, None if a page could not be drawn or read; a job that warns of nothing has none.
    """
    page = None if "output" not in summary else str(join(summary["output"], _PAGE))
    if "warnings" in summary or page is None or not _exists(page):
        return ({} if forewarned is None else {"warnings": len(forewarned)}) | summary
    number = _number_in(page)
    if number:
        _LOGGER.warning("the report has %s: read it before you trust the result", plural(number, "warning"))
    return summary | {"warnings": number}


def total_warnings(numbers: list[int | None]) -> int | None:
    """Warnings of several pages; None if one of them is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _exists(page: str) -> bool:
    try:
        return bool(STORE.exists(page))
    except Exception as error:  # noqa: BLE001 - the run is published and paid
        _LOGGER.warning("the report could not be found: %s", describe_unexpected(error))
        return False


def _number_in(page: str) -> int | None:
    """The number that a page says of itself."""
    try:
        raw = gate.read_bytes(page, Refusal(kind=InputError, rule=f"{page} must be a report", remedy="run again"))
    except Exception as error:  # noqa: BLE001 - the run is published and paid
        _LOGGER.warning("the report could not be read: %s", describe_unexpected(error))
        return None
    found = _NUMBER.search(raw.decode(errors="replace"))
    return None if found is None else int(found[1])
