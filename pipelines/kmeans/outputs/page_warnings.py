"""What a reader should know before trusting a center, in words; from releases and public data only."""

import logging
import math

import numpy as np

from pipelines.kmeans.outputs.center_summary import scaled_stddev
from pipelines.kmeans.outputs.fit_view import FitView
from pipelines.kmeans.prepared.prepared_fit import FitResult, PreparedFit
from pipelines.page.page import Badge, Level, Notice
from pipelines.run.failures import describe_unexpected
from pipelines.run.forewarnings import HIGH_EPSILON
from schemas.choices import Algorithm, ClippingRule, InvalidRows

_LOGGER = logging.getLogger(__name__)
_FEW_SERVER_ROWS = 5
"""Server rows per cluster."""
_WIDE = 10.0
"""A feature this many times as wide as the median one rules the distances."""
_MOST_NAMED = 8


def warnings(view: FitView) -> tuple[Notice, ...]:
    """Warnings first, then notes; one good word if there is no warning."""
    found = [*_of_guarantee(view), *_of_clipping(view), *_of_server_data(view), *_of_clusters(view), *_of_noise(view)]
    found.sort(key=lambda notice: notice.level is not Level.WARNING)
    if not any(notice.level is Level.WARNING for notice in found):
        found.insert(0, Notice(level=Level.GOOD, text="Nothing stands out: every check that this report makes passed."))
    return tuple(found)


def count(prepared: PreparedFit, result: FitResult) -> int | None:
    """Number of warnings in the report of a finished run; None if they could not be found."""
    try:
        return sum(notice.level is Level.WARNING for notice in warnings(FitView.of(prepared, result)))
    except Exception as error:  # noqa: BLE001 - what a run has spent must not be lost to its warnings
        _LOGGER.warning("the warnings could not be counted: %s", describe_unexpected(error))
        return None


def _warning(text: str, badge: Badge) -> Notice:
    return Notice(level=Level.WARNING, text=text, badge=badge)


def _note(text: str, badge: Badge) -> Notice:
    return Notice(level=Level.NOTE, text=text, badge=badge)


def _of_guarantee(view: FitView) -> list[Notice]:
    """Epsilon and delta that promise little."""
    plan, found = view.prepared.plan, []
    if plan.epsilon > HIGH_EPSILON:
        found.append(
            _warning(
                f"Epsilon {plan.epsilon:.4g} is high: one {view.unit_word} may change the probability of an output by "
                f"a factor of e^{plan.epsilon:.4g}. Below 1 is strong, up to about 10 is common in practice.",
                Badge.PUBLIC,
            )
        )
    total = view.noisy_total
    public = view.prepared.config.data.public_rows is not None
    if total is not None and plan.delta * max(total, 1.0) > 1.0:
        known = "the public number" if public else "the noisy number"
        found.append(
            _warning(
                f"Delta {plan.delta:.3g} is larger than 1 / {known} of {view.unit_word}s ({total:,.0f}): a mechanism "
                "that publishes a row now and then would meet it. Choose a delta well below that.",
                Badge.PUBLIC if public else Badge.RELEASED,
            )
        )
    return found


def _of_clipping(view: FitView) -> list[Notice]:
    """The clipping norm against the norms of the public rows."""
    if not view.representative:
        return []
    norm, norms = view.lattice.clipping_norm, view.server_norms
    beyond = float(np.mean(norms > norm * (1.0 + 1e-9)))
    badge = Badge.RELEASED if view.prepared.config.clipping.norm is ClippingRule.PRIVATE else Badge.PUBLIC
    largest = float(norms.max(initial=0.0))
    words = f"The clipping norm is {norm:.4g}; the longest public row has norm {largest:.4g}"
    if beyond > 0.05:
        return [
            _warning(
                f"{words}, and {beyond:.0%} of the public rows lie beyond. Rows beyond it are shrunk to it, so "
                "centers far out are drawn inward. A larger clipping.norm costs noise in proportion.",
                badge,
            )
        ]
    if norm > 3.0 * largest > 0.0:
        return [
            _warning(
                f"{words}: noise grows with the clipping norm, and {norm / largest:.3g} times less would do if "
                "private rows are like the public ones.",
                badge,
            )
        ]
    return [_note(f"{words}, and {_percent(beyond)} of the public rows lie beyond.", badge)]


def _percent(share: float) -> str:
    """A share as text that does not call a few none."""
    return "none" if share == 0.0 else f"{max(share, 0.001):.1%}"


def _of_server_data(view: FitView) -> list[Notice]:
    """Too few public rows, none at all, or features of very different widths."""
    config, server = view.prepared.config, view.prepared.initial.server
    found = []
    if config.algorithm in (Algorithm.DP_LLOYD, Algorithm.CENTRAL_TREE) and not len(server):
        return []
    if not view.representative:
        text = "There were no server data: points drawn in the clipping ball stood in for them, which costs accuracy."
        return [_note(text, Badge.PUBLIC)]
    if len(server) < _FEW_SERVER_ROWS * view.summary.n_clusters:
        found.append(
            _warning(
                f"The server data hold {len(server):,} rows, fewer than {_FEW_SERVER_ROWS} for each cluster: "
                "the start of the centers rests on little.",
                Badge.PUBLIC,
            )
        )
    spread = scaled_stddev(server)
    typical = float(np.median(spread))
    widest = int(spread.argmax())
    if view.summary.n_features > 2 and typical > 0.0 and spread[widest] > _WIDE * typical:
        found.append(
            _warning(
                f"In the server data, feature {view.summary.names[widest]!r} is {spread[widest] / typical:,.3g} times "
                "as wide as the median feature. It rules every distance, and the same noise covers the narrow "
                "features; put features on one scale with the encode section.",
                Badge.PUBLIC,
            )
        )
    if config.data.on_invalid_rows is InvalidRows.DROP:
        found.append(_note("Rows with null or non-finite values were left out, as the job asks.", Badge.PUBLIC))
    return found


def _of_clusters(view: FitView) -> list[Notice]:
    """Clusters that are hardly there, and centers that nearly coincide."""
    numbers, pairs = view.summary.numbers, view.summary.coincident()
    found, small = [], [numbers[index] for index in view.small_clusters]
    if small:
        found.append(
            _warning(
                f"{_clusters(small)} {'has a noisy size' if len(small) == 1 else 'have noisy sizes'} below two noise "
                f"stddevs ({2 * view.size_stddev:,.3g}): such a cluster may be empty, and its center says mostly what "
                "public data say.",
                Badge.RELEASED,
            )
        )
    if pairs:
        named = ", ".join(f"{numbers[first]} and {numbers[second]}" for first, second in pairs[:_MOST_NAMED])
        more = f" and {len(pairs) - _MOST_NAMED} more pairs" if len(pairs) > _MOST_NAMED else ""
        found.append(
            _warning(
                f"Centers {named}{more} nearly coincide (closer than a tenth of the typical distance): "
                "fewer clusters may say the same.",
                Badge.RELEASED,
            )
        )
    return found


def _clusters(numbers: list[int]) -> str:
    """Names of clusters, not all if there are many."""
    named = ", ".join(map(str, numbers[:_MOST_NAMED]))
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return f"Cluster{'s' if len(numbers) > 1 else ''} {named}{more}"


def _of_noise(view: FitView) -> list[Notice]:
    """Releases in which nothing shows above the noise."""
    drowned = [
        release.path
        for release, ratio in zip(view.releases, view.ratios(), strict=True)
        if not ratio > 1.0 + 2.0 / math.sqrt(2.0 * max(release.values.size, 1))
    ]
    if not drowned:
        return []
    named = ", ".join(drowned[:_MOST_NAMED])
    more = f" and {len(drowned) - _MOST_NAMED} more" if len(drowned) > _MOST_NAMED else ""
    return [
        _warning(
            f"Nothing shows above the noise in {named}{more}: this part of the budget bought no information. More "
            "data, a larger epsilon or fewer features would help.",
            Badge.RELEASED,
        )
    ]
