"""Warnings and notes for readers of a `fit` report, from releases and public data only."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dapple_dp.pipelines.jobs import forewarnings
from dapple_dp.pipelines.jobs.forewarnings import sentence
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.report import assumptions, clipping
from dapple_dp.pipelines.kmeans.report.center_summary import scaled_stddev
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.page import Badge, Facts, Level, Notice
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.schemas.choices import Algorithm, InvalidRows
from dapple_dp.schemas.errors import few
from dapple_dp.schemas.privacy.meaning import meaning_of
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.rounds.protocol import ProtocolState

_LOGGER = logging.getLogger(__name__)
_FEW_SERVER_ROWS = 5
"""Smallest number of server rows per cluster."""
_WIDE = 10.0
"""A feature this many times as wide as the median one dominates the distances."""
_DROWNED = 3.0
"""The spread of centers in a feature is lost in noise up to this many noise stddevs."""
_ALONE = 0.99
"""A feature with this share of the centers' squared spread separates nearly all of them alone."""
_MOST_NAMED = 8


Found = list[Notice] | None
"""Notices of a check: empty if it passed, None if the releases can't show it."""


def run_checks(view: FitView) -> tuple[tuple[str, Found], ...]:
    """Runs every check once and returns the results by name; some checks scan whole matrices."""
    return tuple((name, check(view)) for name, check in _checks_of(view))


def warnings(view: FitView, made_checks: tuple[tuple[str, Found], ...]) -> tuple[Notice, ...]:
    """Sorts the notices, warnings first; adds a reassuring one if there is no warning."""
    found = [notice for _, notices in made_checks for notice in notices or ()]
    found += assumptions.of_unknown_spread(view)
    found.sort(key=lambda notice: notice.level is not Level.WARNING)
    if not any(notice.level is Level.WARNING for notice in found):
        text = "Nothing stands out: no check that the releases allow gives a warning; they are listed below."
        found.insert(0, Notice(level=Level.GOOD, text=text))
    return tuple(found)


def checks(made_checks: tuple[tuple[str, Found], ...]) -> Facts:
    """Table of the checks and their outcomes; checks that don't apply to the run are left out."""
    pairs = tuple((name, _outcome(found)) for name, found in made_checks)
    return Facts(title="Checks of this report", badge=Badge.RELEASED, pairs=pairs)


def _outcome(found: Found) -> str:
    if found is None:
        return "not visible in what this run released"
    n_warnings = sum(notice.level is Level.WARNING for notice in found)
    if n_warnings:
        return f"{n_warnings} warning{'s' if n_warnings > 1 else ''}"
    return "a note" if found else "passed"


def texts(planned: PlannedFit, result: FitResult, states: Sequence[ProtocolState] = ()) -> tuple[str, ...]:
    """Warnings of a finished run as text, for callers without a report; () if they can't be computed.

    Args:
      planned: the job.
      result: release of the job.
      states: states of the run; without them, they are replayed from its releases.
    """
    try:
        view = FitView.of(planned, result, states)
        found = warnings(view, run_checks(view))
    except Exception as error:  # noqa: BLE001 - what a run has spent must not be lost to its warnings
        _LOGGER.warning("the warnings could not be found: %s", describe_unexpected(error))
        return ()
    return tuple(notice.text for notice in found if notice.level is Level.WARNING)


def _warning(text: str, badge: Badge) -> Notice:
    return Notice(level=Level.WARNING, text=text, badge=badge)


def _note(text: str, badge: Badge) -> Notice:
    return Notice(level=Level.NOTE, text=text, badge=badge)


def _of_epsilon(view: FitView) -> Found:
    """Warns of an epsilon that promises little."""
    return _forewarned(forewarnings.of_epsilon(view.planned.config.privacy.epsilon))


def _forewarned(found: list[str]) -> list[Notice]:
    """Repeats the warnings that were logged before the run."""
    return [_warning(sentence(text), Badge.PUBLIC) for text in found]


def _of_delta(view: FitView) -> Found:
    """Warns of a delta that promises little."""
    plan, total = view.planned.plan, view.noisy_total
    public = view.planned.config.data.public_rows is not None
    said = _forewarned(forewarnings.of_delta(view.planned.config.privacy.delta, view.planned.config))
    if public or total is None:
        return said if said or public else None
    if plan.delta * max(total, 1.0) <= 1.0:
        return said
    text = (
        f"Delta {plan.delta:.3g} is larger than 1 / the noisy number of {view.unit.words} ({total:,.0f}): a mechanism "
        "that publishes a row now and then would meet it. Choose a delta well below that."
    )
    return [_warning(text, Badge.RELEASED)]


def _of_server_rows(view: FitView) -> Found:
    """Warns of too few public rows, or none."""
    config, server = view.planned.config, view.planned.initial.server
    if not protocol_of(config.algorithm).reads_server and not len(server):
        return None
    if not view.representative:
        text = "There were no server data: random points in the clipping ball replaced them, which costs accuracy."
        return [_note(text, Badge.PUBLIC)]
    if len(server) >= _FEW_SERVER_ROWS * view.summary.n_clusters:
        return []
    text = (
        f"The server data hold {len(server):,} rows, fewer than {_FEW_SERVER_ROWS} for each cluster, so the initial "
        "centers are unreliable."
    )
    return [_warning(text, Badge.PUBLIC)]


def _of_widths(view: FitView) -> Found:
    """Warns of features of very different widths."""
    if not view.representative:
        return _of_spread(view)
    spread = scaled_stddev(view.planned.initial.server)
    typical, widest = float(np.median(spread)), int(spread.argmax())
    if not (view.summary.n_features > 2 and typical > 0.0 and spread[widest] > _WIDE * typical):
        return []
    text = (
        f"In the server data, feature {view.summary.names[widest]!r} is {spread[widest] / typical:,.3g} times as wide "
        "as the median feature. It dominates every distance, and noise hides the narrow features; put features on one "
        "scale with the encode section."
    )
    return [_warning(text, Badge.PUBLIC)]


def _of_spread(view: FitView) -> Found:
    """Warns if one feature separates the centers, while all others differ by little more than noise."""
    found, centers = view.summary.found, view.summary.centers
    if int(found.sum()) < 2 or centers.shape[1] < 2 or view.unknown_noise:
        return None
    # Weighted by sizes, since the center of a few rows is mostly noise.
    weights = view.summary.sizes[found] / view.summary.sizes[found].sum()
    offsets = centers[found] - weights @ centers[found]
    spread = np.sqrt(weights @ offsets**2)
    widest = int(spread.argmax())
    others = float(np.median(np.delete(spread, widest)))
    alone = spread[widest] ** 2 >= _ALONE * (spread**2).sum() > 0.0
    noise = float(np.sqrt(weights @ view.center_noise[found] ** 2))
    if not (alone and spread[widest] > _WIDE * others) or others > _DROWNED * noise:
        return []
    text = (
        f"The centers differ almost only in {view.summary.names[widest]!r}, which dominates the distances between "
        "them. If other columns have smaller units, the noise that all columns share hides them: give each column its "
        "own range, as narrow as you know it to be."
    )
    scaled = view.planned.contract.encoder is not None
    level = Level.WARNING if len(spread) > 2 and not scaled else Level.NOTE
    return [Notice(level=level, text=text, badge=Badge.RELEASED)]


def _of_rows_left_out(view: FitView) -> Found:
    """Notes that the job leaves out rows."""
    if view.planned.config.data.on_invalid_rows is not InvalidRows.DROP:
        return []
    return [
        _note(
            "Rows with null or non-finite values were left out, as the job asks; their number is private.",
            Badge.PUBLIC,
        )
    ]


def _of_sizes(view: FitView) -> Found:
    """Warns of clusters that may be empty."""
    small = [view.summary.numbers[index] for index in view.small_clusters]
    if not small:
        return [] if np.isfinite(view.size_stddevs).all() else None
    says = "public data and noise" if len(view.planned.initial.server) else "the start of the run and noise"
    text = (
        f"{_clusters(small)} {'has a noisy size' if len(small) == 1 else 'have noisy sizes'} below two noise "
        f"stddevs ({view.size_noise}): such a cluster may be empty, and its center mostly reflects {says}. "
        "Such clusters are gray or left out below."
    )
    return [_warning(text, Badge.RELEASED)]


def _of_distances(view: FitView) -> Found:
    """Warns of centers that nearly coincide."""
    numbers, pairs = view.summary.numbers, view.summary.coincident()
    if not pairs:
        return []
    named = ", ".join(f"{numbers[first]} and {numbers[second]}" for first, second in pairs[:_MOST_NAMED])
    more = f" and {len(pairs) - _MOST_NAMED} more pairs" if len(pairs) > _MOST_NAMED else ""
    text = (
        f"Centers {named}{more} nearly coincide (closer than a tenth of the typical distance): fewer clusters may do."
    )
    return [_warning(text, Badge.RELEASED)]


def _clusters(numbers: list[int]) -> str:
    """Names of clusters; shortened if there are many."""
    return f"Cluster{'s' if len(numbers) > 1 else ''} {few(numbers, _MOST_NAMED, str)}"


def _of_noise(view: FitView) -> Found:
    """Warns of releases below their noise, except moves of centers that have converged."""
    drowned = [
        release.path
        for release, ratio in zip(view.releases, view.ratios(), strict=True)
        if not ratio > 1.0 + 2.0 / math.sqrt(2.0 * max(release.values.size, 1))
        and not meaning_of(release.plan.spec).settles
    ]
    if not drowned:
        return []
    return [
        _warning(
            f"Nothing in {few(drowned, _MOST_NAMED, str)} is above the noise, so it tells you nothing. Use more data, "
            "a larger epsilon or fewer features.",
            Badge.RELEASED,
        )
    ]


_CHECKS: tuple[tuple[str, Callable[[FitView], Found]], ...] = (
    ("Epsilon at most 10", _of_epsilon),
    ("Delta below one over the number of units", _of_delta),
    ("Clipping norm against the public rows", clipping.of_public_rows),
    ("Private rows inside the clipping norm", clipping.of_private_rows),
    ("Enough public rows for each cluster", _of_server_rows),
    ("Features of similar widths, by server data or centers", _of_widths),
    ("Invalid rows", _of_rows_left_out),
    ("Every cluster larger than its noise", _of_sizes),
    ("Centers apart from each other", _of_distances),
    ("More clusters than one cloud would show", assumptions.of_clouds),
    ("Every release above its noise", _of_noise),
    ("Norm and server rows as the theorem on FedDP-KMeans assumes", assumptions.of_theorem),
)
"""Checks of a run, by name."""
_APPLIES: Mapping[str, Callable[[FitView], bool]] = {
    "Clipping norm against the public rows": lambda view: view.representative,
    "Private rows inside the clipping norm": lambda view: not clipping.covers_box(view),
    "Enough public rows for each cluster": lambda view: _of_server_rows(view) is not None,
    "Norm and server rows as the theorem on FedDP-KMeans assumes": lambda view: (
        view.planned.config.algorithm is Algorithm.FEDDP_KMEANS and view.representative and not view.by_client
    ),
}
"""Conditions of the checks that only apply to some runs."""


def _of_shares(view: FitView) -> Found:
    """Warns if every client adds all of the noise instead of a share of it."""
    return _forewarned(forewarnings.of_shares(view.planned.config))


def _checks_of(view: FitView) -> tuple[tuple[str, Callable[[FitView], Found]], ...]:
    result = tuple((name, check) for name, check in _CHECKS if name not in _APPLIES or _APPLIES[name](view))
    if np.isfinite(view.bounds.upper).any():
        result = (*result, ("Private rows inside the ranges of the columns", clipping.of_ends))
    if view.planned.config.masked.shares is not None:
        result = (*result, ("Shares of the noise smaller than all of it", _of_shares))
    return result
