"""`report.html` of `decode`: what was promised to clients, how much came in, and the clusters."""

import math

import numpy as np

from pipelines.kmeans.report.center_summary import CenterSummary
from pipelines.page.page import Badge, Bar, Facts, Level, Notice, Page, PrivacyLabel, Section, Table, odds, rendered
from pipelines.page.stamp import RunStamp
from schemas.choices import ReportMode
from schemas.kmeans.model import ClusterModel
from schemas.reports.parameters import ReportParameters, ReportVariant
from schemas.reports.split_parameters import CollectionParameters, SplitParameters
from transforms.numerics.kmeans.edges import at_sphere
from transforms.numerics.reports.mechanism import codeword_moments

_MOST_FEATURES = 8


def render(parameters: CollectionParameters, model: ClusterModel, n_reports: int, stamp: RunStamp | None = None) -> str:
    """The report of a finished run; all of it is computed from private reports and public parameters."""
    return rendered("Clustering of private reports", lambda: page(parameters, model, n_reports, stamp))


def page(parameters: CollectionParameters, model: ClusterModel, n_reports: int, stamp: RunStamp | None = None) -> Page:
    """The page of a run."""
    mode = "shuffled" if parameters.guarantee.mode is ReportMode.SHUFFLE else "local"
    return Page(
        title="Clustering of private reports",
        lead=f"{parameters.n_clusters} clusters of {parameters.n_features} features from {n_reports:,} reports, each "
        "randomized by its own client.",
        tags=(f"{mode} reports", f"variant {parameters.variant}", parameters.cost),
        label=_label(parameters),
        sections=(_clusters(parameters, model, n_reports), _collection(parameters, n_reports)),
        stamp=stamp,
    )


def _label(parameters: CollectionParameters) -> PrivacyLabel:
    """What is guaranteed."""
    guarantee = parameters.guarantee
    factor = f"{math.exp(guarantee.epsilon):,.3g}"
    delta = f", up to {guarantee.delta:.3g}" if guarantee.delta else ""
    sure = odds(guarantee.epsilon)
    local = guarantee.mode is ReportMode.LOCAL
    alone = f"{guarantee.local_epsilon:.6g}, for whoever sees it"
    if isinstance(parameters, SplitParameters):
        alone = "none: messages of one client are not private before the shuffle"
    trust = "local: nobody but the client" if local else "shuffle: the shuffler forgets who sent what"
    return PrivacyLabel(
        epsilon=f"{guarantee.epsilon:.4g}",
        delta=f"{guarantee.delta:.3g}",
        meaning=f"What one client's vector is changes the probability of any result by at most a factor of {factor}"
        f"{delta}. Somebody who gives even odds to two vectors, and knows everything else, is at most {sure:.1%} "
        "sure after seeing this.",
        pairs=(
            ("Privacy unit", "client: its one report"),
            ("Neighboring data sets", "replace one client's vector"),
            ("Epsilon of a single report", alone),
            ("Trust", trust),
            ("Radius", f"{parameters.radius:.4g} (given in the job)"),
        ),
    )


def _clusters(parameters: CollectionParameters, model: ClusterModel, n_reports: int) -> Section:
    """The centers."""
    summary = CenterSummary.of(model.centers, model.noisy_sizes, parameters.features)
    top = summary.top_features(_MOST_FEATURES)
    rows: tuple[tuple[str | Bar, ...], ...] = tuple(
        (
            str(cluster),
            Bar(f"{size:,.0f}", size / max(n_reports, 1)),
            *(f"{model.centers[cluster, feature]:.4g}" for feature in top),
        )
        for cluster, size in enumerate(model.noisy_sizes.tolist())
    )
    table = Table(
        title="Centers, by the features that tell them apart most",
        badge=Badge.RELEASED,
        columns=("Cluster", "Noisy size", *(summary.names[feature] for feature in top)),
        rows=rows,
    )
    return Section(
        name="clusters",
        title="Clusters",
        lead="Sizes and centers are estimates from randomized reports.",
        blocks=(*_warnings(parameters, n_reports), *_shortened(parameters, model, n_reports), table),
    )


def _warnings(parameters: CollectionParameters, n_reports: int) -> tuple[Notice, ...]:
    """What a reader should mind."""
    if isinstance(parameters, SplitParameters) or parameters.variant is ReportVariant.PAPER:
        return ()
    error = _expected_error(parameters, n_reports)
    if error < 0.25:
        return ()
    text = (
        f"Noise moves a center by about {math.sqrt(error):.2f} of the radius before shrinkage. More reports, fewer "
        "clusters or a larger epsilon would help."
    )
    return (Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED),)


def _shortened(parameters: CollectionParameters, model: ClusterModel, n_reports: int) -> tuple[Notice, ...]:
    """Centers as long as the radius to which vectors are shortened, where noise leaves it to be told."""
    if isinstance(parameters, SplitParameters) or parameters.variant is ReportVariant.PAPER or not n_reports:
        return ()
    noise = parameters.radius * math.sqrt(_expected_error(parameters, n_reports) / parameters.n_features)
    judged, there = at_sphere(model.centers, parameters.radius, np.full(len(model.centers), noise))
    sizes = np.maximum(model.noisy_sizes, 0.0)
    if not judged.any() or not sizes[there].sum() >= 0.95 * sizes.sum():
        return ()
    text = (
        f"Nearly all centers are as long as the radius, {parameters.radius:.4g}, as far as noise tells: nearly all "
        "vectors were shortened to it, unless they were brought to this length on purpose. Check the unit, and give a "
        "larger radius to the next collection."
    )
    return (Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED),)


def _expected_error(parameters: ReportParameters, n_reports: int) -> float:
    """Expected squared error of the center of an average cluster by noise alone, in squared radii."""
    mean = codeword_moments(parameters.choices[-1][0]).mean
    typical = n_reports / parameters.n_clusters
    if parameters.depth == 0:
        return parameters.n_features / (typical * mean**2)
    levels = 1.0 if parameters.even_subsets else 1.0 + parameters.depth / 3.0
    return n_reports * levels * parameters.n_features / (typical * mean) ** 2


def _collection(parameters: CollectionParameters, n_reports: int) -> Section:
    """The public parameters."""
    pairs = [
        ("Distinct reports", f"{n_reports:,}"),
        ("Guaranteed minimum", f"{parameters.guarantee.min_batch:,}"),
        ("Levels of the tree", str(parameters.depth) if parameters.depth else "none: points and a mixture"),
        *_mechanism(parameters),
        ("Public key", parameters.key.hex()),
    ]
    facts = Facts(title="Public parameters", badge=Badge.PUBLIC, pairs=tuple(pairs))
    return Section(name="collection", title="The collection", lead="What all encoders agree on.", blocks=(facts,))


def _mechanism(parameters: CollectionParameters) -> list[tuple[str, str]]:
    """What randomizes."""
    if isinstance(parameters, SplitParameters):
        return [
            ("Noise of one client", f"stddev {parameters.client_stddev:.4g} of 1,024 units of the radius"),
            ("Shares of one coordinate", f"{parameters.n_messages} modulo {parameters.modulus}"),
        ]
    choice, _ = parameters.choices[-1]
    return [
        ("Choice", f"{choice.near} of {choice.size} favored, with probability {choice.threshold / 2.0**64:.4f}"),
        ("Most likely over least likely", f"{float(choice.ratio):.6g} = e^{np.log(float(choice.ratio)):.6g}"),
    ]
