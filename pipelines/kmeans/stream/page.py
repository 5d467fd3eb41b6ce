"""`index.html` of a stream: its windows side by side, from released files alone."""

import dataclasses
import hashlib
from typing import Any

import numpy as np
from apache_beam.io.filesystems import FileSystems

from pipelines.ledger.remaining import left_words, remaining
from pipelines.page import plots
from pipelines.page.page import Badge, Block, Level, Notice, Page, PrivacyLabel, Section, Table, plot, rendered
from pipelines.page.plots import Series
from pipelines.page.stamp import RunStamp
from schemas.errors import InputError
from schemas.kmeans.recurring.drift import DRIFT_FILE
from schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE
from schemas.kmeans.stream_config import StreamConfig, StreamOptions
from schemas.privacy.plan import PrivacyUnit
from schemas.settings.refusal import Refusal
from transforms.files import gate
from transforms.files.octets import write_bytes
from transforms.files.publish import CENTERS_FILE

PAGE = "index.html"
_MOST_LINES = 12
_MOST_WINDOWS = 400
"""The page shows the last so many windows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShownWindow:
    """Released numbers of one window; places of clusters are those of its centers.

    Attributes:
      date: of the window.
      sizes: cluster number -> noisy rows.
      noise: cluster number -> noise of the remembered mean, feature units; None where it is not known.
      scores: cluster number -> drift score; None where it is not known.
      privacy: content of `privacy.json`.
    """

    date: str
    sizes: dict[int, float]
    noise: dict[int, float | None]
    scores: dict[int, float | None]
    privacy: dict[str, Any]


def write_page(config: StreamConfig, output: str, done: int) -> None:
    """Draws the page anew.

    Args:
      config: the job.
      output: its folder.
      done: how many windows are complete.
    """
    first = max(0, done - _MOST_WINDOWS)
    dates = [config.calendar.date(index) for index in range(first, done)]
    windows = [_read(FileSystems.join(output, date), date) for date in dates]
    page = rendered("Stream", lambda: _page(config, windows, done))
    write_bytes(FileSystems.join(output, PAGE), page.encode())


def _read(folder: str, date: str) -> ShownWindow:
    """The window in a folder."""

    def found(name: str) -> tuple[str, Refusal]:
        path = FileSystems.join(folder, name)
        rule = f"{path} must be the file that the window released"
        return path, Refusal(kind=InputError, rule=rule, remedy="restore it")

    table = gate.read_table(*found(CENTERS_FILE))
    drift_path, refusal = found(DRIFT_FILE)
    drift = gate.read_json(drift_path, dict[str, Any], refusal)
    privacy_path, refused = found("privacy.json")
    privacy = gate.read_json(privacy_path, dict[str, Any], refused)
    numbers, sizes = table.column("cluster").to_pylist(), table.column("noisy_size").to_pylist()
    with refusal.covers():
        clusters = drift["memory"]["clusters"]
        noise = {int(each["cluster"]): each["noise"] for each in clusters}
        scores = {int(each["cluster"]): each["score"] for each in clusters}
    return ShownWindow(
        date=date, sizes=dict(zip(numbers, sizes, strict=True)), noise=noise, scores=scores, privacy=privacy
    )


def _page(config: StreamConfig, windows: list[ShownWindow], done: int) -> Page:
    options, last = config.options, windows[-1]
    data = config.template.data.name
    left = remaining(config.ledger, data)
    drifting = [number for number, score in last.scores.items() if (score or 0.0) > MEMORY_DRIFT_SCORE]
    epsilon, delta = last.privacy["epsilon"], last.privacy["delta"]
    label = PrivacyLabel(
        epsilon=f"{epsilon:.4g}",
        delta=f"{delta:.3g}",
        meaning=f"for one {_unit(config)}, over all windows of the epoch together",
        pairs=(
            ("Windows", f"{done} of {options.windows}, from {options.first}, every {options.days} days"),
            _participation(options),
            ("Budget left", left_words(config.ledger, left)),
        ),
    )
    sections = (_sizes(windows), _drift(windows, drifting), _table(windows))
    job = hashlib.sha256(repr(sorted(config.base.items(), key=str)).encode()).hexdigest()
    return Page(
        title=f"Stream {options.name}",
        lead=f"Windows up to {last.date}. Each has a report of its own in the folder of its date.",
        tags=(f"{done} windows", f"{len(last.sizes)} clusters"),
        label=label,
        sections=sections,
        stamp=RunStamp.today(f"{options.name}-{last.date}", job, data),
    )


def _unit(config: StreamConfig) -> str:
    """What the epoch protects one of."""
    return "client" if config.template.privacy.unit is PrivacyUnit.CLIENT else "row"


def _participation(options: StreamOptions) -> tuple[str, str]:
    """In how many windows one of them counts."""
    if options.once is not None:
        return "Each row is in one window", options.once
    return "Each client counts", f"in {options.max_windows} windows at most, {options.min_separation} apart at least"


def _lines(windows: list[ShownWindow], field: str) -> list[Series]:
    """A line per cluster over the windows, the largest clusters of the last window."""
    last = windows[-1]
    numbers = sorted(last.sizes, key=lambda number: -last.sizes[number])[:_MOST_LINES]
    x = np.arange(len(windows), dtype=np.float64)
    return [
        Series(f"cluster {number}", x, np.array([_number(getattr(each, field).get(number)) for each in windows]))
        for number in sorted(numbers)
    ]


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _sizes(windows: list[ShownWindow]) -> Section:
    block = plot(
        "sizes",
        "Noisy sizes",
        "Noisy number of rows of each cluster in each window.",
        Badge.RELEASED,
        lambda: plots.line_plot(_lines(windows, "sizes"), f"windows since {windows[0].date}", "noisy rows"),
        "What each window alone adds, noise included; it may be negative.",
    )
    return Section(name="sizes", title="Sizes", lead="How many rows came to each cluster.", blocks=(block,))


def _drift(windows: list[ShownWindow], drifting: list[int]) -> Section:
    text = "No cluster drifts in the last window."
    if drifting:
        text = f"Clusters that drift in the last window: {', '.join(map(str, drifting))}."
    notice = Notice(level=Level.NOTE if drifting else Level.GOOD, text=text, badge=Badge.RELEASED)
    scored = any(score is not None for each in windows for score in each.scores.values())
    blocks: list[Block] = [notice]
    if scored:
        blocks.append(
            plot(
                "drift",
                "Drift scores",
                "Drift score of each cluster in each window.",
                Badge.RELEASED,
                lambda: plots.line_plot(_lines(windows, "scores"), f"windows since {windows[0].date}", "drift score"),
                f"Above {MEMORY_DRIFT_SCORE:g} noise and chance are no explanation.",
            )
        )
    lead = "A short memory against a long one, in stddevs of noise and chance."
    return Section(name="drift", title="Drift", lead=lead, blocks=tuple(blocks))


def _table(windows: list[ShownWindow]) -> Section:
    rows = tuple(
        (each.date, f"{sum(each.sizes.values()):,.0f}", _largest(each.noise), _largest(each.scores))
        for each in reversed(windows)
    )
    table = Table(
        title="Windows",
        badge=Badge.RELEASED,
        columns=("window", "noisy rows", "largest noise of a center", "largest drift score"),
        rows=rows,
        note="Noise of a center: how far noise alone moves its remembered mean, feature units.",
    )
    return Section(name="windows", title="Windows", lead="The last window first.", blocks=(table,))


def _largest(values: dict[int, float | None]) -> str:
    known = [value for value in values.values() if value is not None]
    return f"{max(known):.4g}" if known else "—"
