"""The section on clusters of a `fit` report: sizes, centers, and distinguishing features."""

import itertools

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.report import cluster_plots
from dapple_dp.pipelines.kmeans.report.fit_view import FitView, counted_words
from dapple_dp.pipelines.page import plots
from dapple_dp.pipelines.page.numbers import at_most, fixed, to_noise
from dapple_dp.pipelines.page.page import Badge, Bar, Block, Facts, Level, Notice, Section, Table, plot
from dapple_dp.schemas.kmeans.model import ClusterNames
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.kmeans.protocols import protocol_of

_MOST_CLUSTERS = 200
"""Largest number of clusters in the table of words."""
_MOST_OUTSTANDING = 3
"""Largest number of features named as distinguishing a cluster."""
_MOST_FEATURES = 40
"""Largest number of features in the table of numbers."""
_MOST_COLUMNS = 4
"""Largest number of columns whose typical values are shown."""
_MOST_ALIKE = 3
"""Number of further categories that noise may hide as the largest, from which a column is shown as mixed."""
_SIGNS = 3


def clusters_section(view: FitView) -> Section:
    """The section on sizes and centers."""
    summary = view.summary
    blocks: list[Block] = [_sizes(view), *_cost(view), *_elbow(view)]
    if summary.n_clusters > 1:
        blocks += [] if view.is_projected else [_heat_map(view), *_profiles(view)]
        blocks += [_map(view), *cluster_plots.tree_blocks(view)]
    blocks += [_words(view), _numbers(view)]
    centers = f"{plural(summary.n_clusters, 'center')} of {plural(summary.n_features, 'feature')}"
    lead = f"{centers}, and a noisy size of each, which may even be negative. {_counted(view)}{_grey(view)}"
    return Section(name="clusters", title="Clusters", lead=lead, blocks=tuple(blocks))


def _counted(view: FitView) -> str:
    """Describes the unit of a size, and its noise."""
    weight = _weight(view.most_weight) if view.by_client else ""
    counted = counted_words(view.planned, view.result.model)
    if "unknown" in view.size_noise:
        return f"A size counts {counted}; how far noise moves it is unknown.{weight}"
    within = f"in {view.in_two_stddevs} it is within {view.size_noise} of that number"
    return f"A size counts {counted}: {within}.{weight}"


def _weight(most: float) -> str:
    if most > 0.995:
        return " A client counts with a bounded weight, split by where its rows are."
    return (
        f" In each size a client counts with a weight of at most {at_most(most, 2)}, so sizes can add up to less than "
        "the number of clients."
    )


def _grey(view: FitView) -> str:
    """Notes that some clusters may be empty."""
    if not view.small_clusters:
        return ""
    return (
        f" {len(view.small_clusters)} of {view.summary.n_clusters} may be empty: they are gray, in parentheses, or "
        "left out, and do not count when features are compared."
    )


def _name(view: FitView, index: int) -> str:
    """Number of a cluster, in parentheses if the cluster may be empty."""
    number = view.summary.numbers[index]
    return f"{number}" if view.summary.found[index] else f"({number})"


def _sizes(view: FitView) -> Block:
    n_clusters, twice = view.summary.n_clusters, view.size_noise
    few = f"the {cluster_plots.MOST_BARS} largest of {n_clusters} clusters"
    which = few if n_clusters > cluster_plots.MOST_BARS else "every cluster"
    return plot(
        "sizes",
        "Noisy sizes",
        f"Bars of the noisy size of {which}, with whiskers of two noise stddevs ({twice}).",
        Badge.RELEASED,
        lambda: cluster_plots.size_bars(view.summary, view.size_stddevs, view.unit.size),
        f"Shown: {which}. Whiskers reach two noise stddevs, {twice} {view.unit.size}, either way; a gray bar cannot be "
        "distinguished from an empty cluster.",
    )


_NO_COST = {
    False: (
        "This run doesn't release how well the centers fit. The section “quality” would release their noisy cost for "
        "a share of the budget. For public data, or in the trusted zone, dapple evaluate computes the exact cost."
    ),
    True: (
        "This algorithm doesn't release how well the centers fit. For public data, or in the trusted zone, dapple "
        "evaluate computes the exact cost."
    ),
}


def names_sections(view: FitView) -> list[Section]:
    """The topics of the clusters, largest first, for a run with names; empty otherwise."""
    names, summary, read = view.names, view.summary, view.planned.config.terms
    if names is None or read is None:
        return []
    shown = summary.largest_clusters(_MOST_CLUSTERS).tolist()
    units = view.unit.words
    more = f" The {_MOST_CLUSTERS} largest of {summary.n_clusters} clusters." if len(shown) < summary.n_clusters else ""
    noise = 2.0 * names.count_stddev
    weighed = ", each client's rows sharing one vote" if view.by_client else ""
    table = Table(
        title="What clusters are about",
        badge=Badge.RELEASED,
        columns=("cluster", f"names, with noisy numbers of {units} ± {to_noise(noise, noise)}", "noisy size"),
        rows=tuple(
            (
                _name(view, index),
                _called(view, names, index),
                to_noise(float(summary.sizes[index]), float(view.size_stddevs[index])),
            )
            for index in shown
        ),
        words=2,
        note=f"Terms of the public vocabulary that are more frequent among a cluster's rows than among all{weighed}, "
        f"strongest first: by more than {names.threshold:.2f} noise stddevs, even if the cluster is as large as its "
        f"noisy size allows. At most {names.most_false:g} names by noise alone are expected in a whole run. A row has "
        f"the first {read.most:,} different terms of its list that the vocabulary knows, and longer lists are cut: "
        "names.most_per_row says where. "
        f"“No name” says that no term stands out of the noise, not that the cluster is empty.{more}",
    )
    lead = "Each cluster by the terms that set it apart. No other term of a text is in this report."
    return [Section(name="names", title="Topics", lead=lead, blocks=(table,))]


def _called(view: FitView, names: ClusterNames, index: int) -> str:
    """Names of a cluster, each with its noisy count."""
    noise = names.count_stddev
    return ", ".join(
        f"{names.terms[row]} ({to_noise(float(names.counts[row]), noise)})" for row in names.of(index)
    ) or ("no name" if view.summary.found[index] else "no name; may be empty")


def _cost(view: FitView) -> list[Block]:
    """The noisy distance of rows to their centers, or a note that the run didn't release it."""
    cost = view.result.model.noisy_cost
    if cost is None:
        return [Notice(level=Level.NOTE, text=_NO_COST[not protocol_of(view.planned.config.algorithm).sells_cost])]
    cap = view.planned.config.quality and view.planned.config.quality.max_distance
    distance = f"distance (at most {cap:.4g})" if cap else "distance"
    mean = "mean over clients of their mean" if view.by_client else "mean"
    pairs = (
        ("Noisy cost", f"{cost.mean:.4g} ± {2 * cost.stddev:.2g} (two noise stddevs)"),
        (
            "What it is",
            f"The {mean} squared {distance} of a row, clipped to norm {view.lattice.clipping_norm:.4g}, to its nearest "
            "center; released within the budget. It may even be negative.",
        ),
    )
    return [Facts(title="How well the centers fit", badge=Badge.RELEASED, pairs=pairs)]


def _elbow(view: FitView) -> list[Block]:
    """The cost curve from which the run chose the number of clusters; empty if it didn't choose."""
    costs = np.asarray(getattr(view.result.model, "proxy_costs", ()), dtype=np.float64)
    chosen = view.summary.n_clusters
    if not len(costs):
        return []
    return [
        plot(
            "elbow",
            "Choosing the number of clusters",
            f"Cost for 1 to {len(costs)} clusters; {chosen} were chosen at the elbow.",
            Badge.RELEASED,
            lambda: plots.elbow_plot(costs, chosen),
            "The cost of clustering the weighted public points, which were released already: choosing was free.",
        )
    ]


def _heat_map(view: FitView) -> Block:
    """Heat map of the centers over the most distinguishing features."""
    n_features = view.summary.n_features
    shown = f"all {n_features} features" if n_features > 1 else "the only feature"
    if n_features > cluster_plots.MOST_ROWS:
        shown = f"the {cluster_plots.MOST_ROWS} of {n_features:,} features in which centers differ most"
    return plot(
        "heat",
        "What sets clusters apart",
        f"Heat map of the centers over {shown}; each feature is standardized across clusters.",
        Badge.RELEASED,
        lambda: cluster_plots.heat_map(view.summary),
        f"Shown: {shown}, by their stddev across clusters. Each row is standardized: +1 is one such stddev above the "
        f"mean of the centers.{_largest(view)}{_PALE if view.small_clusters else ''}",
    )


_PALE = " Gray columns: clusters that may be empty."


def _largest(view: FitView) -> str:
    most, n_clusters = cluster_plots.MOST_BARS, view.summary.n_clusters
    return f" The {most} largest of {n_clusters} clusters." if n_clusters > most else ""


def _profiles(view: FitView) -> list[Block]:
    """Positions of clusters in single features; empty for fewer than three features."""
    axes = min(view.summary.n_features, cluster_plots.MOST_AXES)
    if axes < 3 or view.summary.found.sum() < 2:
        return []
    named, n_found = len(cluster_plots.SERIES), int(view.summary.found.sum())
    some = f"; the {named} largest are in color" if n_found > named else ""
    some += "; clusters that may be empty are left out" if view.small_clusters else ""
    return [
        plot(
            "profiles",
            "Profiles",
            f"A dot per cluster in each of the {axes} features in which centers differ most, standardized.",
            Badge.RELEASED,
            lambda: cluster_plots.profile_dots(view.summary),
            f"The {axes} most telling features, in their own order. A dot is a cluster{some}.",
        )
    ]


def _map(view: FitView) -> Block:
    """Principal components of the centers: two on one scale, or only the first if it has nearly all the spread."""
    on_a_line = view.summary.on_a_line
    how = "along a line, their widest direction" if on_a_line else "along their two widest directions, on one scale"
    words = "The centers lie nearly on a line" if on_a_line else "Principal components of the centers, on one scale"
    empty = " Rings: clusters that may be empty." if view.small_clusters else ""
    return plot(
        "map",
        "Map of the centers",
        f"Centers {how} (principal components); areas are noisy sizes.",
        Badge.RELEASED,
        lambda: cluster_plots.center_map(view.summary),
        f"{words}; the area of a disc is its noisy size.{empty} Discs that lie together here may differ in other "
        "directions.",
    )


def _words(view: FitView) -> Table:
    """Table of sizes, with the distinguishing features in words."""
    summary = view.summary
    positive = np.maximum(summary.sizes, 0.0)
    shares = positive / max(float(positive.sum()), 1e-300)
    shown = summary.largest_clusters(_MOST_CLUSTERS)
    more = f" The {_MOST_CLUSTERS} largest of {summary.n_clusters} clusters." if len(shown) < summary.n_clusters else ""
    encoded, plain = view.planned.contract.encoder is not None, not view.is_projected
    said = (plain and not view.unknown_noise, encoded and plain)
    return Table(
        title="Clusters in words" if any(said) else "Sizes of the clusters",
        badge=Badge.RELEASED,
        columns=(
            "cluster",
            *(("stands out by",) if said[0] else ()),
            *(("typical",) if said[1] else ()),
            f"noisy size ± {view.size_noise}",
            "share",
        ),
        rows=tuple(
            (
                _name(view, index),
                *_in_words(view, index),
                to_noise(float(summary.sizes[index]), float(view.size_stddevs[index])),
                Bar(f"{shares[index]:.1%}", float(shares[index])),
            )
            for index in shown.tolist()
        ),
        words=1 + sum(said),
        note=f"Features are positions in vectors of terms, and mean nothing one by one.{more}"
        if not plain
        else f"{view.unknown_noise} So this report names no feature by which a cluster stands out.{more}"
        if view.unknown_noise
        else "Up to three features in which the center lies at least one stddev across clusters above (↑) or below (↓) "
        "the mean of the centers, by more than noise explains (over the whole table, false in one of 20 runs at most); "
        f"strongest first.{more}",
    )


def _in_words(view: FitView, index: int) -> tuple[str, ...]:
    """Distinguishing features of a cluster, and its typical values if columns are encoded."""
    if view.is_projected:
        return ()
    there, words = bool(view.summary.found[index]), []
    if not view.unknown_noise:
        words.append(_high_and_low(view, index) if there else "may be empty")
    if view.planned.contract.encoder is not None:
        words.append(_typical(view, index) if there else "")
    return tuple(words)


def _high_and_low(view: FitView, index: int) -> str:
    """The features in which a center stands out, with arrows up or down."""
    names = view.summary.names
    words = (
        f"{'↑' if sign > 0 else '↓'}\N{NO-BREAK SPACE}{names[feature]}"
        for feature, sign in view.summary.outstanding(index, _MOST_OUTSTANDING)
    )
    return ", ".join(words) or "—"


def _center_noise(view: FitView) -> str:
    """Explanation of the noise column."""
    if view.unknown_noise:
        return view.unknown_noise
    start = "Noise: two stddevs, the largest of these clusters."
    if protocol_of(view.planned.config.algorithm).one_length:
        return (
            f"{start} A center has the direction of sums of several rounds: in {view.in_two_stddevs} it is so near to "
            "where these sums point without noise."
        )
    weighted = ", each by its client's weight," if view.by_client else ""
    return (
        f"{start} The mean of the rows that were counted{weighted} is so near to what the last round alone says in "
        f"{view.in_two_stddevs}. Shrinkage moves a center from there toward what else is known."
    )


def _numbers(view: FitView) -> Table:
    summary = view.summary
    features = np.sort(summary.top_features(_MOST_FEATURES))
    clusters = summary.largest_clusters(cluster_plots.MOST_BARS)
    cut = []
    if len(features) < summary.n_features:
        cut.append(f"the {len(features)} of {summary.n_features:,} features in which centers differ most")
    if len(clusters) < summary.n_clusters:
        cut.append(f"the {len(clusters)} largest of {summary.n_clusters} clusters")
    encoded = view.planned.contract.encoder is not None
    same = "centers.parquet has encoded features." if encoded else "The same as centers.parquet, rounded."
    note = f"Shown: {' and '.join(cut)}; centers.parquet has all." if cut else same
    if encoded and not view.is_projected:
        note += " Means are in the units of the columns; percentages are shares of a cluster's rows, cut to 0% to 100%."
    note += f" {_center_noise(view)}"
    lines, noise = _value_texts(view, features, clusters), noise_texts(view, features, clusters)
    return Table(
        title=f"Centers in {view.unit_words if view.is_projected or not encoded else 'the units of the columns'}",
        badge=Badge.RELEASED,
        columns=("feature", *(_name(view, index) for index in clusters.tolist()), "noise"),
        rows=tuple(
            (summary.names[feature], *line, each) for feature, line, each in zip(features, lines, noise, strict=True)
        ),
        folded=True,
        note=note,
    )


def _value_texts(view: FitView, features: NDArray[np.int64], clusters: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Values as texts: a row per feature, a text per cluster."""
    encoder, centers = view.planned.contract.encoder, view.summary.centers
    if encoder is None:
        return [fixed(centers[clusters, feature].tolist()) for feature in features]
    values, shares = encoder.decoded(centers), encoder.in_percent
    return [
        tuple(f"{value:.0f}%" for value in values[clusters, feature])
        if shares[feature]
        else fixed(values[clusters, feature].tolist())
        for feature in features
    ]


def noise_texts(view: FitView, features: NDArray[np.int64], clusters: NDArray[np.int64]) -> list[str]:
    """Two noise stddevs per feature, the largest over nonempty clusters; "unknown" if the noise is unknown."""
    encoder, summary = view.planned.contract.encoder, view.summary
    shown = clusters[summary.found[clusters]]
    if view.unknown_noise:
        return ["unknown"] * len(features)
    moved = summary.centers + 2.0 * view.center_stddevs
    ends = (summary.centers, moved) if encoder is None else (encoder.decoded(summary.centers), encoder.decoded(moved))
    noise = np.abs(ends[1] - ends[0])[shown]
    if not len(shown):
        return ["—"] * len(features)
    return [f"{noise[:, feature].max():.2g}" for feature in features]


def _typical(view: FitView, index: int) -> str:
    """Typical values of a cluster, such as "hours 41.2; education Bachelors (62%)"; "" without encoded columns.

    Columns in which centers differ most come first. If a column has several features, the one with the largest share is
    named, with those that noise may have hidden; if the noise is unknown, the column is left out.
    """
    encoder = view.planned.contract.encoder
    if encoder is None:
        return ""
    columns = sorted(_parts(encoder), key=lambda each: -float(view.summary.spread[each[1]].max()))[:_MOST_COLUMNS]
    values, shares = encoder.decoded(view.summary.centers)[index], encoder.in_percent
    words = []
    for column, part in columns:
        if view.unknown_noise and part.stop - part.start > 1:
            continue  # Noise may hide the largest value.
        best, *others = view.summary.largest_of(index, part)
        name = view.summary.names[best]
        if len(others) >= _MOST_ALIKE:
            words.append(f"{column} mixed")
            continue
        number = f"({values[best]:.0f}%)" if shares[best] else fixed([float(values[best])], _SIGNS)[0]
        alike = "".join(f" or {view.summary.names[each].removeprefix(f'{column} ')}" for each in others)
        words.append(f"{name} {number}{alike}")
    return "; ".join(words)


def _parts(encoder: Encoder) -> list[tuple[str, slice]]:
    """Columns, and the slice of features of each."""
    ends = np.cumsum([0, *(len(column.names) for column in encoder.columns)]).tolist()
    places = (slice(low, high) for low, high in itertools.pairwise(ends))
    return [(column.column, place) for column, place in zip(encoder.columns, places, strict=True)]
