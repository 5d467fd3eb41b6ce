"""Notices of a `fit` report on the clipping norm, from public rows and from releases."""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.page import Badge, Level, Notice
from dapple_dp.schemas.choices import ClippingRule
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import few
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.meaning import Role
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.numerics.kmeans.centers import released_as
from dapple_dp.transforms.numerics.kmeans.edges import NEAR, at_ends, at_sphere
from dapple_dp.transforms.numerics.kmeans.scatter import trace_of

_MOST_NAMED = 8
_CUT = "or rows beyond it were clipped to it. Check the unit, and set a wider range from what you know"
_NEARLY_ALL = 0.95
"""Mean squared length of clipped rows, in squared norms, above which nearly all rows must be clipped."""


def norm_source(config: FitConfig) -> str:
    """Describes the source of a job's clipping norm."""
    return {
        ClippingRule.PRIVATE: "released: a noisy quantile of the rows' norms",
        ClippingRule.DOMAIN: "half the diagonal of the domain, to which every coordinate is clipped first",
        ClippingRule.SERVER_RADIUS: "radius of the public server data",
    }.get(config.clipping.norm, "given in the job")  # type: ignore[arg-type]


def of_public_rows(view: FitView) -> list[Notice] | None:
    """Compares the clipping norm with the norms of the public rows; None without any."""
    if not view.representative:
        return None
    norm, norms = view.lattice.clipping_norm, view.server_norms
    beyond = float(np.mean(norms > norm * (1.0 + 1e-9)))
    badge = Badge.RELEASED if view.planned.config.clipping.norm is ClippingRule.PRIVATE else Badge.PUBLIC
    largest = float(norms.max(initial=0.0))
    words = f"The clipping norm is {norm:.4g}; the longest public row has norm {largest:.4g}"
    if beyond > 0.05:
        text = (
            f"{words}, and {beyond:.0%} of the public rows lie beyond. Longer rows are shortened to it, which pulls "
            "outer centers inward. A larger clipping.norm adds noise in proportion."
        )
        return [Notice(level=Level.WARNING, text=text, badge=badge)]
    if norm > 3.0 * largest > 0.0:
        text = (
            f"{words}: noise grows with the norm, and a norm {norm / largest:.3g} times smaller would do if private "
            "rows are like the public ones."
        )
        return [Notice(level=Level.WARNING, text=text, badge=badge)]
    text = f"{words}, and {_percent(beyond)} of the public rows lie beyond."
    return [Notice(level=Level.NOTE, text=text, badge=badge)]


def _percent(share: float) -> str:
    """Formats a share; a small one is never shown as none."""
    return "none" if share == 0.0 else f"{max(share, 0.001):.1%}"


def of_private_rows(view: FitView) -> list[Notice] | None:
    """Checks whether nearly all private rows are clipped, by the noisy scatter or centers at the sphere.

    Returns:
      A warning or a note; an empty list if the scatter shows that few rows are clipped; None if neither is known.
    """
    found = of_releases(view)
    return found or of_sphere(view) or found


def of_releases(view: FitView) -> list[Notice] | None:
    """Checks by the noisy scatter and row count whether nearly all rows are clipped; None if these are unknown.

    Both are released anyway. The trace of the scatter is the sum of the squared lengths of the clipped rows, none of
    which is longer than the norm.
    """
    scatter, total = scatter_release(view), view.noisy_total
    if scatter is None or total is None:
        return None
    low, mean, high = filled(scatter, total, view)
    if high <= 1.0 - _NEARLY_ALL:
        # Each clipped row is as long as the norm, so their share is at most the mean squared length.
        return []
    if not low >= _NEARLY_ALL:
        return None
    text = (
        "Almost all rows are clipped: according to the noisy scatter, the squared length of a clipped row is on "
        f"average {min(mean, 1.0):.0%} of what the clipping norm, {view.lattice.clipping_norm:.4g}, allows. Clipping "
        "hides distances between rows, and clusters with them, unless you scaled rows to this length. Check the unit "
        "and scale of the norm's source, or set a larger clipping.norm."
    )
    return [Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED)]


def of_ends(view: FitView) -> list[Notice] | None:
    """Warns of centers at an end of a column's range, where nearly all rows have one value or were clipped to it.

    Returns:
      A warning each, or one for all if nearly all centers are there. None instead of an empty list, since rows beyond
      both ends leave a center in the middle, and no release counts them.
    """
    bounds, found = view.bounds, view.summary.found
    ends = at_ends(view.plain_centers, bounds, view.center_noise)
    judged = ends.judged & found[:, None]
    encoder, both = view.planned.contract.encoder, np.stack([bounds.lower, bounds.upper])
    shown = both if encoder is None else encoder.decoded(both)
    clipped, empty, single = list[str](), list[str](), list[tuple[int, str]]()
    enough = _share(view, judged, found) >= 0.5
    for feature in np.flatnonzero(judged.any(axis=0)).tolist():
        own, (lower, upper) = judged[:, feature], shown[:, feature]
        sharp = own & (2.0 * view.center_noise <= NEAR * (bounds.upper - bounds.lower)[feature])
        two_values = upper - lower == 1.0 and lower == round(lower)
        for there, value in ((ends.lower[:, feature], lower), (ends.upper[:, feature], upper)):
            words = f"{view.summary.names[feature]!r} ({value:,.6g})"
            if enough[feature] and float(_share(view, (there & own)[:, None], own)[0]) >= _NEARLY_ALL:
                (empty if value == 0.0 else clipped).append(words)
            elif value != 0.0 and not two_values:
                single += [(view.summary.numbers[index], words) for index in np.flatnonzero(there & sharp).tolist()]
    notices = [*_of_nearly_all(clipped, empty, len(shown[0])), *_of_single(single)]
    return notices or None


def _of_nearly_all(clipped: list[str], empty: list[str], n_features: int) -> list[Notice]:
    """Notices on columns in which nearly all centers are at an end of the range."""
    wide = Level.WARNING if 2 * len(empty) >= n_features > 1 else Level.NOTE
    checks = (
        (Level.WARNING, clipped, f"nearly all rows have that value, {_CUT}"),
        (
            wide,
            empty,
            "nearly all rows are 0 there, or the range is far too wide and noise hides the column",
        ),
    )
    return [
        Notice(
            level=level,
            text=f"Nearly all centers lie at an end of the range of {few(columns, _MOST_NAMED, str)}, within the "
            f"noise: {words}.",
            badge=Badge.RELEASED,
        )
        for level, columns, words in checks
        if columns
    ]


def _of_single(found: list[tuple[int, str]]) -> list[Notice]:
    """A warning for each center at an end of a range; shortened if there are many."""
    more = f" {len(found) - _MOST_NAMED} more centers lie at ends." if len(found) > _MOST_NAMED else ""
    return [
        Notice(
            level=Level.WARNING,
            text=f"Center {number} lies at an end of the range of {words}, within the noise: its rows have that value, "
            f"{_CUT}.{more if index == _MOST_NAMED - 1 else ''}",
            badge=Badge.RELEASED,
        )
        for index, (number, words) in enumerate(found[:_MOST_NAMED])
    ]


def _share(view: FitView, clusters: NDArray[np.bool_], among: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Share of clusters, shape (k, n), in the noisy rows of the clusters `among`, shape (k,); shape (n,)."""
    sizes = np.maximum(view.summary.sizes, 0.0) * among
    shares: NDArray[np.float64] = sizes @ clusters / max(float(sizes.sum()), 1e-300)
    return shares


def covers_box(view: FitView) -> bool:
    """Returns whether the clipping norm reaches the corners of the box, so that no row inside it is clipped."""
    frame = view.replay.state.frame
    corner = math.inf if frame.box is None else frame.box.half_side * math.sqrt(len(frame.lattice.center))
    return frame.lattice.clipping_norm >= 0.999 * corner


def of_sphere(view: FitView) -> list[Notice] | None:
    """Warns of centers at the sphere of the clipping norm, where nearly all rows are that long or were clipped."""
    frame = view.replay.state.frame
    middle, norm = frame.lattice.center, frame.lattice.clipping_norm
    if covers_box(view) or protocol_of(view.planned.config.algorithm).one_length:
        return None
    judged, there = at_sphere(view.plain_centers - middle, norm, view.center_noise)
    judged = judged & view.summary.found
    if not _share(view, judged[:, None], view.summary.found)[0] >= 0.5:
        return None
    share = float(_share(view, there[:, None], judged)[0])
    if not (there & judged).any():
        return None
    level, which = (Level.WARNING, "Nearly all") if share >= _NEARLY_ALL else (Level.NOTE, "Some")
    text = (
        f"{which} centers are as long as the clipping norm, {norm:.4g}, within the noise: nearly all rows there were "
        "shortened to it, unless you scaled rows to this length. Check the unit, and set a larger norm from public "
        "knowledge."
    )
    return [Notice(level=level, text=text, badge=Badge.RELEASED)]


def scatter_release(view: FitView) -> Release | None:
    """The release whose trace is the sum of the rows' squared lengths (mean over each client's rows), if any."""
    return released_as(view.releases, Role.SQUARED_LENGTHS)


def filled(scatter: Release, total: float, view: FitView) -> tuple[float, float, float]:
    """Mean squared length of clipped rows, in squared norms: two noise stddevs below, as released, two above."""
    squared = view.lattice.clipping_norm**2
    noise = math.sqrt(len(view.lattice.center)) * scatter.stddev / squared
    trace, rows = trace_of(scatter.decoded) / squared, max(total, 1.0)
    count = 2.0 * _count_noise(view)
    high = (trace + 2.0 * noise) / (rows - count) if rows > count else math.inf
    return (trace - 2.0 * noise) / (rows + count), trace / rows, high


def _count_noise(view: FitView) -> float:
    """Noise stddev of the number of rows; 0 if it is public."""
    if view.planned.config.data.public_rows is not None or view.counted is None:
        return 0.0
    return view.counted.stddev
