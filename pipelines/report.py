"""`report.html`: one file, no network, that says what was run and what it guarantees."""

import jinja2
import numpy as np

from pipelines.prepared_fit import FitResult, PreparedFit
from schemas.plan import PrivacyUnit

_ENVIRONMENT = jinja2.Environment(loader=jinja2.PackageLoader("pipelines"), autoescape=True, trim_blocks=True)
_SHOWN_FEATURES = 12


def render(prepared: PreparedFit, result: FitResult) -> str:
    """The report of a finished run; everything in it is released or public."""
    config = prepared.config
    unit = "all rows of one client" if prepared.plan.unit is PrivacyUnit.CLIENT else "one row"
    return _ENVIRONMENT.get_template("report.html.j2").render(
        config=config,
        plan=prepared.plan,
        privacy=result.privacy,
        unit=unit,
        lattice=prepared.initial.frame.lattice,
        releases=_release_rows(result),
        features=prepared.feature_names[:_SHOWN_FEATURES],
        n_features=result.model.centers.shape[1],
        clusters=_cluster_rows(result),
        warnings=_warnings(result),
    )


def _release_rows(result: FitResult) -> list[dict[str, object]]:
    """One row per release: its noise beside the size of its signal."""
    return [
        {
            "path": release.path,
            "mechanism": str(release.plan.spec.mechanism).replace("_", " "),
            "size": release.plan.spec.size,
            "multiplier": release.plan.noise_multiplier,
            "stddev": release.stddev,
            "signal": float(np.sqrt(np.mean(release.decoded**2))),
        }
        for release in result.model.releases
    ]


def _cluster_rows(result: FitResult) -> list[dict[str, object]]:
    """Noisy size and first coordinates of every center."""
    model = result.model
    return [
        {
            "index": index,
            "size": float(model.noisy_sizes[index]),
            "center": model.centers[index, :_SHOWN_FEATURES].tolist(),
        }
        for index in range(model.n_clusters)
    ]


def _warnings(result: FitResult) -> list[str]:
    """What a reader should know before trusting a center."""
    counts = [release for release in result.model.releases if release.path.endswith("/counts")]
    stddev = counts[-1].stddev if counts else 0.0
    small = np.flatnonzero(result.model.noisy_sizes < 2.0 * stddev)
    return [
        f"The noisy size of cluster {index} is below two noise stddevs: its center is mostly public." for index in small
    ]
