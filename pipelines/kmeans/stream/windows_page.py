"""`index.html` of a stream: its models, sizes and drift over the windows, from released files alone."""

import hashlib

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.stream import center_plots
from dapple_dp.pipelines.kmeans.stream.history import History, read_history
from dapple_dp.pipelines.ledger.remaining import remaining
from dapple_dp.pipelines.ledger.spending import left_words
from dapple_dp.pipelines.page.page import (
    Badge,
    Block,
    Facts,
    Level,
    Notice,
    Page,
    PrivacyLabel,
    Section,
    Table,
    plot,
    render_page,
)
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.kmeans.jobs.stream_config import StreamConfig, StreamOptions
from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_DRIFT_SCORE
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.stores import join

PAGE = "index.html"
_OPEN_ROWS = 30
"""Longer tables are folded."""


def write_page(config: StreamConfig, output: str, done: int) -> None:
    """Redraws the page.

    Args:
      config: the job.
      output: folder of the job.
      done: number of complete windows, at least 1.
    """
    history = read_history(config, output, done)
    page = render_page("Stream", lambda: _page(config, history, done))
    write_bytes(join(output, PAGE), page.html.encode())


def _page(config: StreamConfig, history: History, done: int) -> Page:
    options, last = config.options, history.last
    left = left_words(config.ledger, remaining(config.ledger, config.template.data.name))
    label = PrivacyLabel(
        epsilon=f"{history.epsilon:.4g}",
        delta=f"{history.delta:.3g}",
        meaning=f"for one {_unit(config)}, over all windows of the epoch together",
        pairs=(
            ("Windows", f"{done} of {options.windows}, from {options.first}, every {_days(options)}"),
            _participation(options),
            ("Budget left", left),
        ),
    )
    unit = "weight of clients" if _unit(config) == "client" else "rows"
    job = hashlib.sha256(repr(sorted(config.base.items(), key=str)).encode()).hexdigest()
    return Page(
        title=f"Stream {options.name}",
        lead=f"Windows up to {last.date}. Each has a report of its own in the folder of its date. {history.thinning}",
        tags=(plural(done, "window"), plural(len(last.sizes), "cluster")),
        label=label,
        sections=(
            _centers(history.overall, done),
            Section(
                name="features",
                title="Features, sizes and drift",
                lead="Coordinates of the centers, and how many came to each cluster. Drift is a short memory against "
                "a long one, in stddevs of noise and chance.",
                blocks=(_features(history.overall), *_sizes(history, unit), *_drift(history)),
            ),
            _budget(history, left, options.windows - done),
            _table(history, unit),
        ),
        stamp=RunStamp.today(f"{options.name}-{last.date}", job, config.template.data.name),
    )


def _days(options: StreamOptions) -> str:
    return "day" if options.days == 1 else f"{options.days} days"


def _unit(config: StreamConfig) -> str:
    """The privacy unit of the epoch, in words."""
    return UNITS[config.template.privacy.unit].word


def _participation(options: StreamOptions) -> tuple[str, str]:
    """Label and value on how many windows a unit may be in."""
    if options.once is not None:
        return "Each row is in one window", options.once
    return "Each client counts", f"in {options.max_windows} windows at most, {options.min_separation} apart at least"


def _centers(history: History, done: int) -> Section:
    """The section on the movement of the centers."""
    blocks: list[Block] = []
    if len(history.features) > 1:
        blocks.append(
            plot(
                "paths",
                "Paths of the centers",
                "How each center moved from window to window, along the two directions in which centers spread most.",
                Badge.RELEASED,
                lambda: center_plots.center_paths(history),
                "A ring is where a center began, a dot with its number where it is now." + _largest_clusters(history),
            )
        )
    if done > 1:
        blocks.append(
            plot(
                "distances",
                "Distance from the first window",
                "How far each center is from where it was in the first window.",
                Badge.RELEASED,
                lambda: center_plots.distance_lines(history),
                "Dashed: how far noise alone moves the noisiest center of the last window.",
            )
        )
    lead = "The centers of each window's model: means in which older windows fade (stream.memory)."
    return Section(name="centers", title="Centers", lead=lead, blocks=tuple(blocks))


def _features(history: History) -> Block:
    most, found = center_plots.MOST_PANELS, len(history.features)
    some = f" The {most} of {found} features in which centers moved most." if found > most else ""
    return plot(
        "features",
        "Centers by feature",
        "Coordinates of each center in each window, a small plot per feature, with their noise.",
        Badge.RELEASED,
        lambda: center_plots.feature_panels(history),
        "Bands: two stddevs of the noise either way. A center has no band where its noise is not known."
        + some
        + _largest_clusters(history),
    )


def _largest_clusters(history: History) -> str:
    """Sentence on which clusters have a color, if not all do."""
    named, found = center_plots.NAMED, len(history.last.sizes)
    return f" The {named} largest clusters of {found} have a color." if found > named else ""


def _views(history: History) -> list[tuple[str, str, History]]:
    """Suffixes of plot names and titles, and the windows to show: the epoch, and its latest windows if thinned."""
    recent = history.recent
    found = [("", "", history.overall)]
    return found if recent is None else [*found, ("-recent", f", last {len(recent.windows)} windows", recent)]


def _sizes(history: History, unit: str) -> tuple[Block, ...]:
    caption = (
        "What each window alone adds. It may be negative. Bands: two stddevs of the noise either way, now "
        f"{2.0 * history.size_stddevs[-1]:,.4g}. Each plot has a scale of its own.{_largest_clusters(history)}"
    )
    return tuple(
        plot(
            f"sizes{end}",
            f"Noisy sizes{words}",
            f"Noisy size of each cluster in each window, in {unit}, with its noise.",
            Badge.RELEASED,
            lambda view=view: center_plots.size_panels(view, unit),  # type: ignore[misc]
            caption,
        )
        for end, words, view in _views(history)
    )


_UNSEEN = "Drift is not visible in the last window: no cluster has a score there."


def _drift(history: History) -> list[Block]:
    drifting = [number for number, score in history.last.scores.items() if (score or 0.0) > MEMORY_DRIFT_SCORE]
    seen = any(score is not None for score in history.last.scores.values())
    text = f"No drift score of the last window is above {MEMORY_DRIFT_SCORE:g}." if seen else _UNSEEN
    if drifting:
        text = f"Clusters that drift in the last window: {', '.join(map(str, drifting))}."
    level = Level.GOOD if seen and not drifting else Level.NOTE
    blocks: list[Block] = [Notice(level=level, text=text, badge=Badge.RELEASED)]
    if any(score is not None for window in history.windows for score in window.scores.values()):
        blocks += [
            plot(
                f"drift{end}",
                f"Drift scores{words}",
                "Drift score of each cluster in each window.",
                Badge.RELEASED,
                lambda view=view: center_plots.score_lines(view),  # type: ignore[misc]
                f"Scores above {MEMORY_DRIFT_SCORE:g} are more than noise and chance "
                f"explain.{_largest_clusters(history)}",
            )
            for end, words, view in _views(history)
        ]
    return blocks


def _budget(history: History, left: str, rest: int) -> Section:
    """The section on the cost of the epoch and the remaining budget."""
    spent = f"epsilon {history.epsilon:.4g}, delta {history.delta:.3g}"
    facts = Facts(
        title="Budget",
        badge=Badge.RELEASED,
        pairs=(
            ("All windows of the epoch together cost", spent),
            ("Windows to come", f"{rest}, which cost nothing more"),
            ("Left of the data set's budget", left),
        ),
    )
    lead = "The ledger charges an epoch once."
    return Section(name="budget", title="Budget", lead=lead, blocks=(facts,))


def _table(history: History, unit: str) -> Section:
    rows = tuple(
        (
            window.date,
            f"{sum(window.sizes.values()):,.0f}",
            f"{2.0 * stddev:,.4g}",
            _largest(window.noise),
            _largest(window.scores),
        )
        for window, stddev in zip(reversed(history.windows), reversed(history.size_stddevs.tolist()), strict=True)
    )
    table = Table(
        title="Windows",
        badge=Badge.RELEASED,
        columns=("window", f"noisy {unit}", "noise of a size", "largest noise of a center", "largest drift score"),
        rows=rows,
        folded=len(rows) > _OPEN_ROWS,
        note="Noise of a size: two stddevs. Noise of a center: how far noise alone moves its remembered mean, "
        f"{history.unit_words}.",
    )
    lead = f"The last window first. {history.thinning}"
    return Section(name="windows", title="Windows", lead=lead, blocks=(table,))


def _largest(values: dict[int, float | None]) -> str:
    known = [value for value in values.values() if value is not None]
    return f"{max(known):.4g}" if known else "—"
