"""What a `fit` report says of the clipping norm: by public rows, and by what was released of private ones."""

import math

import numpy as np

from pipelines.kmeans.outputs.fit_view import FitView
from pipelines.page.page import Badge, Level, Notice
from schemas.choices import ClippingRule
from schemas.privacy.release import Release
from transforms.numerics.kmeans.scatter import unpack_symmetric

_NEARLY_ALL = 0.95
"""Mean squared length of clipped rows, in squared norms, from which nearly all rows must be clipped."""


def of_public_rows(view: FitView) -> list[Notice] | None:
    """The clipping norm against the norms of the public rows; None without any."""
    if not view.representative:
        return None
    norm, norms = view.lattice.clipping_norm, view.server_norms
    beyond = float(np.mean(norms > norm * (1.0 + 1e-9)))
    badge = Badge.RELEASED if view.planned.config.clipping.norm is ClippingRule.PRIVATE else Badge.PUBLIC
    largest = float(norms.max(initial=0.0))
    words = f"The clipping norm is {norm:.4g}; the longest public row has norm {largest:.4g}"
    if beyond > 0.05:
        text = (
            f"{words}, and {beyond:.0%} of the public rows lie beyond. Rows beyond it are shrunk to it, so "
            "centers far out are drawn inward. A larger clipping.norm costs noise in proportion."
        )
        return [Notice(level=Level.WARNING, text=text, badge=badge)]
    if norm > 3.0 * largest > 0.0:
        text = (
            f"{words}: noise grows with the clipping norm, and {norm / largest:.3g} times less would do if "
            "private rows are like the public ones."
        )
        return [Notice(level=Level.WARNING, text=text, badge=badge)]
    text = f"{words}, and {_percent(beyond)} of the public rows lie beyond."
    return [Notice(level=Level.NOTE, text=text, badge=badge)]


def _percent(share: float) -> str:
    """A share as text that does not call a few none."""
    return "none" if share == 0.0 else f"{max(share, 0.001):.1%}"


def of_releases(view: FitView) -> list[Notice] | None:
    """Whether nearly all private rows are clipped, by the noisy scatter and number of rows; None if these are unknown.

    Both were released anyway: the trace of the scatter is the sum of the squared lengths of the clipped rows, none of
    which is longer than the norm.
    """
    scatter, total = scatter_release(view), view.noisy_total
    if scatter is None or total is None:
        return None
    low, mean = filled(scatter, total, view)
    if not low >= _NEARLY_ALL:
        return []
    text = (
        f"Almost all rows are clipped: by the noisy scatter, the squared length of a clipped row is on average "
        f"{min(mean, 1.0):.0%} of what the clipping norm, {view.lattice.clipping_norm:.4g}, allows. Distances between "
        "rows are lost, and so are clusters, unless rows were brought to this length on purpose. Check the unit and "
        "the scale of what the norm is taken from, or give a larger clipping.norm."
    )
    return [Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED)]


def scatter_release(view: FitView) -> Release | None:
    """The release whose trace is the sum of the squared lengths of rows (mean over each client's rows), if any."""
    ends = ("shape/scatter",) if view.by_client else ("shape/scatter", "outer_product/scatter")
    return next((release for release in view.releases if release.path.endswith(ends)), None)


def filled(scatter: Release, total: float, view: FitView) -> tuple[float, float]:
    """Mean squared length of clipped rows in squared norms: two noise stddevs below, and as released."""
    matrix = unpack_symmetric(scatter.decoded / view.lattice.clipping_norm**2)
    noise = math.sqrt(len(matrix)) * scatter.stddev / view.lattice.clipping_norm**2
    trace, rows = float(np.trace(matrix)), max(total, 1.0)
    return (trace - 2.0 * noise) / (rows + 2.0 * _count_noise(view)), trace / rows


def _count_noise(view: FitView) -> float:
    """Noise stddev of the number of rows; 0 where it is public."""
    if view.planned.config.data.public_rows is not None:
        return 0.0
    counted = [release for release in view.releases if release.path.endswith("/rows")]
    return counted[0].stddev if counted else 0.0
