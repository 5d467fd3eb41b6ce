"""`report.html` of `profile`: the guarantee, and the clusters' sizes, means, percentiles and counts."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pyarrow as pa

from dapple_dp.pipelines.jobs.forewarnings import of_delta, of_epsilon, sentence
from dapple_dp.pipelines.ledger.spending import Remaining, left_words
from dapple_dp.pipelines.page import plots
from dapple_dp.pipelines.page.numbers import fixed, to_noise
from dapple_dp.pipelines.page.page import (
    Badge,
    Bar,
    Block,
    Drawn,
    Facts,
    Level,
    Notice,
    Page,
    PrivacyLabel,
    Section,
    Table,
    meaning,
    plot,
    render_page,
)
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.pipelines.run.versions import versions
from dapple_dp.schemas.core.unit import UNITS
from dapple_dp.schemas.privacy.statement import PIPELINE_DP
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import ProfileEvent, ProfileLaw, ProfilePlan, Statistic, clusters_of
from dapple_dp.transforms.profile.accounting import statement

_MOST_CLUSTERS = 30
_MOST_PLOTS = 6
"""Largest number of columns with a plot of means."""
_MOST_VALUES = 8
"""Largest number of values per column shown for a cluster."""
_LAWS = {
    ProfileLaw.GAUSSIAN: "Gaussian",
    ProfileLaw.LAPLACE: "Laplace",
    ProfileLaw.GAUSSIAN_THRESHOLD: "Gaussian with a threshold",
}
_TELLS = {
    "sizes": "how large each cluster is",
    "means": "where the mean of the column lies",
    "percentiles": "where its percentiles lie",
    "histograms": "how often its values occur",
    "selections": "which values are common enough to be named",
}
OF_MODEL = (
    "If the model that is described was fitted to these data, then that has spent a budget of its own; both add up."
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProfileView:
    """A finished profile, prepared for its report; everything here is released or public.

    Attributes:
      config: the job.
      plan: plan that was spent.
      table: table with `PROFILE_SCHEMA`.
      stamp: run id and versions of the run; None if the page belongs to no run.
      left: remaining budget of the data set; None refers readers to the ledger, if there is one.
    """

    config: ProfileConfig
    plan: ProfilePlan
    table: pa.Table
    stamp: RunStamp | None = None
    left: Remaining | None = None

    @functools.cached_property
    def clusters(self) -> list[dict[str, Any]]:
        """Sizes, means, percentiles and counts, by cluster."""
        return clusters_of(self.table)

    @functools.cached_property
    def noise(self) -> dict[tuple[int, str | None, str], float]:
        """Noise stddevs by cluster, column and statistic; the largest for counts, none for percentiles."""
        result: dict[tuple[int, str | None, str], float] = {}
        for row in self.table.to_pylist():
            key = row["cluster"], row["column"], row["statistic"]
            if row["noise_stddev"] is not None:
                result[key] = max(result.get(key, 0.0), row["noise_stddev"])
        return result

    def stddevs(self, clusters: list[dict[str, Any]], column: str | None, statistic: Statistic) -> list[float]:
        """Noise stddevs of a statistic in the given clusters; raises KeyError for a statistic without one."""
        return [self.noise[cluster["cluster"], column, str(statistic)] for cluster in clusters]

    @property
    def sized_by(self) -> Statistic:
        """Statistic used as cluster size, in privacy units."""
        return self.plan.sized_by

    @property
    def units(self) -> str:
        """Plural noun for the counted units."""
        return UNITS[self.plan.unit].words

    def size(self, cluster: dict[str, Any]) -> tuple[float, float]:
        """Noisy size of a cluster in privacy units, and its noise stddev."""
        return float(cluster["sizes"][self.sized_by]), self.stddevs([cluster], None, self.sized_by)[0]

    @property
    def small(self) -> list[int]:
        """Numbers of the clusters whose noisy size is below two noise stddevs."""
        sizes = {cluster["cluster"]: self.size(cluster) for cluster in self.clusters}
        return [number for number, (size, stddev) in sizes.items() if size < 2.0 * stddev]

    @property
    def found(self) -> list[dict[str, Any]]:
        """Clusters that can be distinguished from empty ones."""
        return [cluster for cluster in self.clusters if cluster["cluster"] not in self.small]


def render(view: ProfileView) -> Drawn:
    """Renders the report of a finished profile."""
    return render_page("Private profile", lambda: page(view))


def page(view: ProfileView) -> Page:
    """Builds the page of a run."""
    name, plan = view.config.data.name, view.plan
    n_columns = len(plan.numeric) + len(plan.categorical)
    return Page(
        title=f"Private profile of {name}" if name else "Private profile",
        lead=f"{plan.n_clusters} clusters of a released model, described by {n_columns} columns from noised numbers. "
        "No row of the private data, and no exact count, is in this report.",
        tags=(
            "PipelineDP",
            f"{len(plan.events)} mechanisms",
        ),
        label=_label(view),
        sections=(_guarantee(view), _trust(view), _sizes(view), *_numbers(view), *_values(view), _reading(view)),
        stamp=view.stamp,
    )


def _label(view: ProfileView) -> PrivacyLabel:
    plan, stated = view.plan, statement(view.plan)
    sampled = ("Sampling rate", f"{plan.rate:g} of {view.units}, for percentiles; not counted on")
    rows = (("Rows of one client", f"at most {plan.unit_rows}"),) if plan.by_client else ()
    return PrivacyLabel(
        epsilon=f"{plan.epsilon:.4g}",
        delta=f"{plan.delta:.3g}",
        meaning=f"{meaning(stated, PIPELINE_DP)} {OF_MODEL}",
        pairs=(
            ("Privacy unit", f"{plan.unit}: {UNITS[plan.unit].whole}"),
            ("Neighboring data sets", stated.neighbors),
            *rows,
            ("Trust", f"{stated.trust}: {stated.actors}"),
            *((sampled,) if plan.rate < 1.0 else ()),
            ("Budget left", left_words(view.config.ledger, view.left)),
        ),
    )


def _guarantee(view: ProfileView) -> Section:
    total = sum(event.share for event in view.plan.events)
    table = Table(
        title="Every mechanism, and what it cost",
        badge=Badge.PUBLIC,
        columns=("mechanism", "tells", "law", "numbers", "noise over sensitivity", "share"),
        rows=tuple(_event(event, event.share / total) for event in view.plan.events),
        words=3,
        folded=len(view.plan.events) > 16,
        note="Share: of the budget. Numbers: a dash where how many there are is private, too.",
    )
    lead = (
        f"{len(view.plan.events)} mechanisms of PipelineDP looked at the data. Their privacy losses were composed "
        f"before any data were read: together at most ({view.plan.epsilon:.6g}, {view.plan.delta:.3g})."
    )
    return Section(name="guarantee", title="Guarantee", lead=lead, blocks=(table,))


def _event(event: ProfileEvent, share: float) -> tuple[str | Bar, ...]:
    path = event.path.removeprefix("profile/")
    return (
        path,
        _TELLS.get(path.partition("/")[0], ""),
        _LAWS[event.law],
        "—" if event.shape is None else f"{int(np.prod(event.shape)):,}",
        f"{event.normalized_stddev:.4g}",
        Bar(f"{share:.1%}", share),
    )


def notices(view: ProfileView) -> tuple[Notice, ...]:
    """Warnings, or a reassuring notice if there are none."""
    found = [Notice(level=Level.WARNING, text=text, badge=badge) for _, text, badge in _checked(view) if text]
    if not found:
        text = "Nothing stands out: every check passed; they are listed below."
        found = [Notice(level=Level.GOOD, text=text)]
    return tuple(found)


def _checked(view: ProfileView) -> list[tuple[str, str, Badge]]:
    """All checks: name, warning or "", and source of the numbers."""
    plan = view.plan
    small = ""
    high = "".join(map(sentence, of_epsilon(view.config.privacy.epsilon)))
    delta = "".join(map(sentence, of_delta(view.config.privacy.delta, view.config)))
    total = sum(view.size(cluster)[0] for cluster in view.clusters)
    if not delta and plan.delta * max(total, 1.0) > 1.0:
        delta = f"Delta {plan.delta:.3g} is larger than 1 / the noisy number of {view.units} ({total:,.0f}); lower it."
    if view.small:
        named = ", ".join(map(str, view.small[:8])) + (" …" if len(view.small) > 8 else "")
        small = (
            f"Cluster{'s' if len(view.small) > 1 else ''} {named}: a noisy size below two noise stddevs. Such a "
            "cluster may be empty, and its means and percentiles say nothing; they are left out below."
        )
    return [
        ("Epsilon at most 10", high, Badge.PUBLIC),
        ("Delta below one over the number of units", delta, Badge.RELEASED),
        ("Every cluster larger than its noise", small, Badge.RELEASED),
    ]


def _trust(view: ProfileView) -> Section:
    pairs = tuple((name, "1 warning" if text else "passed") for name, text, _ in _checked(view))
    listed = Facts(title="Checks of this report", badge=Badge.RELEASED, pairs=pairs)
    lead = "Checks of the noisy numbers against their noise, and of the settings."
    return Section(name="warnings", title="Before you trust it", lead=lead, blocks=(*notices(view), listed))


def _sizes(view: ProfileView) -> Section:
    shown = sorted(view.clusters, key=lambda each: -view.size(each)[0])[:_MOST_CLUSTERS]
    shown.sort(key=lambda each: int(each["cluster"]))
    sizes = np.array([view.size(each) for each in shown])
    names = [_name(view, each["cluster"]) for each in shown]
    few = f" The {_MOST_CLUSTERS} largest of {len(view.clusters)}." if len(shown) < len(view.clusters) else ""
    block = plot(
        "sizes",
        "Noisy sizes",
        f"Bars of the noisy size of clusters, with whiskers of two noise stddevs.{few}",
        Badge.RELEASED,
        lambda: plots.noisy_bars(names, sizes[:, 0], sizes[:, 1], view.units),
        f"Whiskers reach two noise stddevs either way; a gray bar cannot be distinguished from an empty cluster.{few}",
    )
    lead = f"Noisy numbers of {view.units}; they may even be negative."
    return Section(name="clusters", title="Clusters", lead=lead, blocks=(block,))


def _name(view: ProfileView, number: int) -> str:
    """Number of a cluster, in parentheses if the cluster may be empty."""
    return f"({number})" if number in view.small else f"{number}"


def _numbers(view: ProfileView) -> tuple[Section, ...]:
    columns = [name for name in view.plan.numeric if any(name in each["numeric"] for each in view.found)]
    if not columns:
        return ()
    drawn = [_mean_plot(view, index, name) for index, name in enumerate(columns[:_MOST_PLOTS])]
    lead = "In the units of the columns, inside their public bounds, for clusters that are larger than their noise."
    blocks: tuple[Block, ...] = (*drawn, *(_mean_table(view, name) for name in columns))
    return (Section(name="means", title="Means and percentiles", lead=lead, blocks=blocks),)


def _mean_plot(view: ProfileView, index: int, column: str) -> Block:
    shown = [each for each in view.found if column in each["numeric"]][:_MOST_CLUSTERS]
    means = np.array([each["numeric"][column].get("mean", np.nan) for each in shown])
    noise = np.array(view.stddevs(shown, column, Statistic.MEAN))
    spans = [[value for key, value in each["numeric"][column].items() if key != "mean"] for each in shown]
    wide = np.array([(min(span), max(span)) if span else (np.nan, np.nan) for span in spans])
    ends = view.plan.numeric[column].percentiles
    bar = f" The pale bar spans percentiles {ends[0]:g} to {ends[-1]:g}." if ends else ""
    return plot(
        f"mean-{index}",
        f"Mean of {column}",
        f"Noisy mean of {column} in every cluster, with whiskers of two noise stddevs.{bar}",
        Badge.RELEASED,
        lambda: plots.noisy_dots([f"{each['cluster']}" for each in shown], means, noise, wide, column),
        f"Whiskers reach two noise stddevs, to first order.{bar}",
    )


def _mean_table(view: ProfileView, column: str) -> Table:
    keys = ["mean", *(f"p{percentile}" for percentile in _percentiles(view, column))]
    shown = [each for each in view.found if column in each["numeric"]]
    lines = [fixed([float(each["numeric"][column].get(key, np.nan)) for each in shown]) for key in keys]
    noise = view.stddevs(shown, column, Statistic.MEAN)
    rows = tuple(
        (
            f"{each['cluster']}",
            lines[0][index],
            to_noise(2.0 * noise[index], noise[index]),
            *(x[index] for x in lines[1:]),
        )
        for index, each in enumerate(shown)
    )
    return Table(
        title=f"{column}, in numbers",
        badge=Badge.RELEASED,
        columns=("cluster", "mean", "± (two noise stddevs)", *(f"percentile {key[1:]}" for key in keys[1:])),
        rows=rows,
        folded=True,
        note="Percentiles are read from noisy counts; their noise has no simple stddev.",
    )


def _percentiles(view: ProfileView, column: str) -> list[str]:
    """Percentiles of a column, named as in the table."""
    found = {key[1:] for each in view.found for key in each["numeric"].get(column, {}) if key != "mean"}
    return sorted(found, key=float)


def _values(view: ProfileView) -> tuple[Section, ...]:
    columns = [name for name in view.plan.categorical if any(name in each["categorical"] for each in view.found)]
    if not columns:
        return ()
    lead = (
        f"Noisy numbers of {view.units} by value, largest first. Where the vocabulary is not public, values that too "
        f"few {view.units} share are not named."
    )
    tables = tuple(_value_table(view, name) for name in columns)
    return (Section(name="values", title="Values", lead=lead, blocks=tables),)


def _value_table(view: ProfileView, column: str) -> Table:
    rows = []
    for each in view.found:
        counts = each["categorical"].get(column, {})
        total = max(sum(max(count, 0.0) for count in counts.values()), 1e-300)
        stddev = view.stddevs([each], column, view.sized_by)[0] if counts else 0.0
        rows += [
            (
                f"{each['cluster']}",
                str(value),
                to_noise(count, stddev),
                Bar(f"{max(count, 0.0) / total:.0%}", count / total),
            )
            for value, count in list(counts.items())[:_MOST_VALUES]
        ]
    return Table(
        title=column,
        badge=Badge.RELEASED,
        columns=("cluster", "value", f"noisy number of {view.units}", "share of those named"),
        rows=tuple(rows),
        words=2,
        folded=len(rows) > 24,
        note=f"The {_MOST_VALUES} most common values of each cluster at most; profile.parquet has all.",
    )


def _reading(view: ProfileView) -> Section:
    blocks: tuple[Block, ...] = (
        Notice(
            level=Level.NOTE,
            text="Anything more that you compute from profile.parquet costs no further budget; profiling the same rows "
            "again does.",
        ),
        Facts(title="About this report", badge=Badge.PUBLIC, pairs=tuple(versions().items())),
    )
    lead = "The numbers are safe to share under the guarantee above."
    return Section(name="reading", title="Use", lead=lead, blocks=blocks)
