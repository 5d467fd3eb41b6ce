"""`report.html` of `fit`: a single file that works offline."""

import numpy as np

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from dapple_dp.pipelines.kmeans.report import cluster_plots
from dapple_dp.pipelines.kmeans.report.clipping import norm_source
from dapple_dp.pipelines.kmeans.report.clusters import clusters_section, names_sections
from dapple_dp.pipelines.kmeans.report.fit_view import FitView, counted_words
from dapple_dp.pipelines.kmeans.report.report_warnings import checks, run_checks, warnings
from dapple_dp.pipelines.ledger.spending import Remaining, left_words
from dapple_dp.pipelines.page import plots
from dapple_dp.pipelines.page.page import (
    Badge,
    Bar,
    Block,
    Code,
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
from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.core.plan import Geometry, Mechanism, PrivacyPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.privacy.meaning import Role, meaning_of
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT
from dapple_dp.schemas.privacy.statement import KEY_STREAM
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.yaml_text import flow
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.numerics.kmeans.centers import released_as


def render(
    planned: PlannedFit, result: FitResult, remaining: Remaining | None = None, stamp: RunStamp | None = None
) -> Drawn:
    """Renders the report of a finished run; everything in it is released or public.

    Args:
      planned: the job.
      result: release of the job.
      remaining: remaining budget of the data set; None refers readers to the ledger, if there is one.
      stamp: run id and versions at the bottom of the page; None if the page belongs to no run.
    """
    spent = f"({result.privacy.epsilon:.6g}, {result.privacy.delta:.3g})"
    lead = f"This report could not be written. The run spent {spent}; its other files are whole."
    return render_page("Private clustering", lambda: page(FitView.of(planned, result), remaining, stamp), lead, stamp)


def page(view: FitView, remaining: Remaining | None, stamp: RunStamp | None = None) -> Page:
    """Builds the page of a run."""
    config, summary = view.planned.config, view.summary
    algorithm = protocol_of(config.algorithm).title
    clusters, features = plural(summary.n_clusters, "cluster"), plural(summary.n_features, "feature")
    return Page(
        title=f"Private clustering of {config.data.name}" if config.data.name else "Private clustering",
        lead=_left_out(view) + f"{clusters} of {features}, found by {algorithm} from noised sums. {_hidden(view)}",
        tags=(
            algorithm,
            f"{config.privacy.allocation} allocation",
            f"{plural(len(view.planned.rounds), 'round')}, {plural(len(view.releases), 'release')}",
        ),
        label=_label(view, remaining),
        sections=fit_sections(view),
        stamp=stamp,
    )


def _left_out(view: FitView) -> str:
    """Sentence on rows that were left out, if the job asks for that; their number isn't released."""
    data = view.planned.config.data
    if data.on_invalid_rows is not InvalidRows.DROP:
        return ""
    filled = not isinstance(data.features, str) and set(data.features) <= set(data.missing)
    what = "an infinite" if filled else "a missing or infinite"
    return f"Rows with {what} value are left out of this run, and their share is unknown. "


def _hidden(view: FitView) -> str:
    """Sentence on what the report doesn't reveal; the number of units may be public."""
    if view.planned.config.data.public_rows is None:
        return "No row of the private data, and no exact count of rows, is in this report."
    return f"No row of the private data is in this report; the number of {view.unit.words} is public."


def _slack(plan: PrivacyPlan) -> list[tuple[str, str]]:
    """The part of delta spent on discrete noise, if any."""
    slack = plan.discretization_slack
    return [("For discrete noise", f"{slack:.1g} of delta")] if slack else []


def _label(view: FitView, remaining: Remaining | None) -> PrivacyLabel:
    plan, config, statement = view.planned.plan, view.planned.config, view.result.privacy
    asked, covers, alone = config.privacy, statement.covers, statement.epoch is None
    spent = f"{plan.epsilon:.6g} spent of {asked.epsilon:.6g} asked for"
    together = "" if covers is None else f" This holds for {covers}."
    return PrivacyLabel(
        epsilon=f"{plan.epsilon:.4g}",
        delta=f"{plan.delta:.3g}",
        meaning=meaning(statement, KEY_STREAM) + together,
        pairs=(
            ("Privacy unit", f"{plan.unit}: {view.unit.whole}"),
            ("Neighboring data sets", statement.neighbors),
            ("Budget of this run", spent) if alone else (f"Budget of {covers}", f"{spent}, charged once"),
            *_slack(plan),
            ("Trust", f"{statement.trust}: {statement.actors}"),
            *(() if statement.ran is None else (("Engine", statement.ran),)),
            ("Sizes", f"noisy, ± {view.size_noise} {view.unit.size}: {counted_words(view.planned, view.result.model)}"),
            ("Clipping norm", f"{view.lattice.clipping_norm:.4g} ({norm_source(config)})"),
            ("Budget left", _budget_left(view, remaining)),
        ),
    )


def _budget_left(view: FitView, remaining: Remaining | None) -> str:
    """Text on the remaining budget; clients with separate jobs have no ledger."""
    if view.result.privacy.has_parties:
        return "unknown here: the aggregator counts the runs, if its job names a ledger"
    return left_words(view.planned.config.ledger, remaining)


_MOST_WEIGHTS = 5000
_MOST_FEATURES = 30
_MECHANISMS = {Mechanism.DISCRETE_GAUSSIAN: "discrete Gaussian", Mechanism.DISCRETE_LAPLACE: "discrete Laplace"}


def fit_sections(view: FitView) -> tuple[Section, ...]:
    """All sections, in the order of the page."""
    first = (_guarantee(view), _warnings(view), *names_sections(view), clusters_section(view))
    return (*first, *_drift(view), _rounds(view), *_curator(view), _reading(view))


def _drift(view: FitView) -> tuple[Section, ...]:
    """The section on changes since the previous run; empty if there is none."""
    if view.result.drift is None:
        return ()
    from dapple_dp.pipelines.kmeans.report.drift_plots import drift_sections

    return drift_sections(view)


def _curator(view: FitView) -> list[Section]:
    config = view.planned.config
    given = {} if config.deployment is None else config.deployment.given
    facts = {
        "Deployment": {name.replace("_", " "): text for name, text in given.items()},
        "Reasons for settings": config.justification,
    }
    blocks = tuple(
        Facts(title=title, badge=Badge.PUBLIC, pairs=tuple(pairs.items())) for title, pairs in facts.items() if pairs
    )
    lead = "Written by the curator in the job, and copied verbatim."
    return [Section(name="curator", title="From the curator", lead=lead, blocks=blocks)] if blocks else []


def _guarantee(view: FitView) -> Section:
    """The section on privacy events and the split of the budget among them."""
    plan, covers = view.planned.plan, view.result.privacy.covers
    split = view.planned.config.masked.shares is not None
    added = ", of all shares that were added; privacy.json has what epsilon counts on" if split else ""
    blocks: tuple[Block, ...] = (
        Table(
            title="Every release, and what it cost",
            badge=Badge.PUBLIC,
            columns=("release", "tells", "mechanism", "numbers", "sensitivity", "noise multiplier", "share"),
            rows=tuple(_event(release, share) for release, share in zip(view.releases, view.shares(), strict=True)),
            words=3,
            folded=len(view.releases) > 16,
            note=f"Sensitivity: how far one unit can move the exact sum{'' if covers is None else f's of {covers}'}, "
            f"in {view.unit_words} or {view.unit.words}. Noise multiplier: noise over sensitivity{added}. "
            f"Share: of the budget. Paths begin with {view.releases[0].path.partition('/')[0]}/. Nothing else in this "
            "report was computed from private rows.",
        ),
    )
    blocks = (*blocks, *_coalitions(view))
    left, whose = "left the data", "Their privacy losses"
    if covers is not None:
        left, whose = "left the data in this window", f"The privacy losses of {covers}"
    lead = (
        f"{len(view.releases)} noised sums {left}. {whose} were composed before any data were read: together at most "
        f"({plan.epsilon:.6g}, {plan.delta:.3g}). Everything in this report that is labeled “{Badge.RELEASED}” was "
        "computed from them and from public data, at no further cost."
    )
    return Section(name="guarantee", title="Guarantee", lead=lead, blocks=blocks)


def _coalitions(view: FitView) -> list[Block]:
    """Table of the coalitions against which the guarantee holds, for masked aggregation."""
    rows = (view.result.privacy.masked or {}).get("coalitions", [])
    if not rows:
        return []
    table = Table(
        title="Against whom it holds",
        badge=Badge.PUBLIC,
        columns=("parties that pool what they know", "holds", "in words"),
        rows=tuple((row["parties"], "yes" if row["holds"] else "no", row["words"]) for row in rows),
        words=3,
        note="Parties follow the protocol. What is stated for a coalition holds for each part of it.",
    )
    return [table]


def short_path(path: str) -> str:
    """A release path without the algorithm's name."""
    return path.partition("/")[2] or path


def _event(release: Release, share: float) -> tuple[str | Bar, ...]:
    spec = release.plan.spec
    norm = "L1" if spec.mechanism is Mechanism.DISCRETE_LAPLACE else "L2"
    if spec.geometry is Geometry.SYMMETRIC:
        norm = "Frobenius"
    return (
        short_path(release.path),
        meaning_of(release.plan.spec).tells,
        _MECHANISMS[spec.mechanism],
        f"{spec.size:,}",
        f"{spec.sensitivity * release.lattice_unit:.4g} ({norm})",
        f"{release.plan.noise_multiplier:.4g}",
        Bar(f"{share:.1%}", share),
    )


def _warnings(view: FitView) -> Section:
    lead = "Checks of the releases against their noise, and of the settings against the public data."
    found = run_checks(view)
    return Section(
        name="warnings", title="Before you trust it", lead=lead, blocks=(*warnings(view, found), checks(found))
    )


def _rounds(view: FitView) -> Section:
    blocks = [_signal_plot(view), *_movement_plot(view), *_weights_plot(view)]
    rows = tuple(
        (
            short_path(release.path),
            f"{release.stddev:.4g}",
            f"{_size(release):.4g}",
            f"{ratio:.4g}",
        )
        for release, ratio in zip(view.releases, view.ratios(), strict=True)
    )
    blocks.append(
        Table(
            title="Noise and signal in numbers",
            badge=Badge.RELEASED,
            columns=("release", "noise stddev", "root mean square", "over noise"),
            rows=rows,
            folded=True,
            note=f"In {view.unit_words}, their squares (scatter), or {view.unit.words}.",
        )
    )
    lead = "Each round sums one statistic over the data, adds noise, and the server computes the next step from that."
    return Section(name="rounds", title="Rounds", lead=lead, blocks=tuple(blocks))


def _size(release: Release) -> float:
    return float(np.sqrt(np.mean(release.decoded**2)))


def _signal_plot(view: FitView) -> Block:
    """Plot of each release's signal against its noise."""
    most = cluster_plots.MOST_BARS
    names, ratios = [short_path(release.path) for release in view.releases], view.ratios()
    shown = slice(None) if len(names) <= most else slice(len(names) - most, None)
    only = f" The last {most} of {len(names)} releases." if len(names) > most else ""
    return plot(
        "signal",
        "Signal against noise",
        f"Root mean square of each release over that of its noise, on a log scale; 1 is noise alone.{only}",
        Badge.RELEASED,
        lambda: plots.signal_dots(names[shown], ratios[shown]),
        f"How many times larger the numbers of a release are than its noise. At 1 a release is noise alone.{only}",
    )


def _movement_plot(view: FitView) -> list[Block]:
    """Plot of how far each round moved the centers."""
    movements = view.replay.movements
    clusters = view.summary.largest_clusters(cluster_plots.MOST_BARS)
    if not movements:
        return []
    noise = "The mark is how far this round's noise alone would move a center; shrinkage damps it."
    if len(movements) == 1:
        return [
            plot(
                "movement",
                "From the start to the centers",
                "Distance of each center from where it was before the round, beside what noise explains.",
                Badge.RELEASED,
                lambda: cluster_plots.movement_dots(movements[0], clusters, view.summary.numbers, view.unit_words),
                f"From where each center was before the round to where it was released. {noise}",
            )
        ]
    return [
        plot(
            "movement",
            "How far centers moved",
            f"Distance that centers moved in each of {len(movements)} rounds, beside what noise explains.",
            Badge.RELEASED,
            lambda: cluster_plots.movement_lines(movements, clusters, view.unit_words),
            "Thin lines: single clusters; thick: root mean square. The dashed line is how far the noise of one round "
            "alone would move a center: where the thick line meets it, further rounds bring little.",
        )
    ]


def _weights_plot(view: FitView) -> list[Block]:
    """The histogram over public points, if the run has one that can be drawn."""
    release = released_as(view.releases, Role.POINT_WEIGHTS)
    if release is None or release.values.size > _MOST_WEIGHTS:
        return []
    return [
        plot(
            "weights",
            "Weights of the public points",
            f"Noisy weights of {release.values.size:,} public points in descending order; noise alone stays mostly "
            "inside the band.",
            Badge.RELEASED,
            lambda: plots.sorted_weights(release.decoded, release.stddev),
            f"Noisy {view.unit.size} nearest to each public point; inside the band, it may be none.",
        )
    ]


def _reading(view: FitView) -> Section:
    """The section on using the result, with a glossary and the versions."""
    blocks: tuple[Block, ...] = (
        Code(title="Assign all rows of a table to their nearest centers", text=_assign(view)),
        *_in_python(view),
        Notice(
            level=Level.NOTE,
            text="Labels of private rows are private data: the guarantee covers the centers, not what you look up with "
            f"them. Anything more that you compute from the files of this run costs no further budget; {_again(view)}.",
        ),
        Facts(title="Words", badge=None, pairs=_glossary(view)),
        Facts(
            title="About this report",
            badge=Badge.PUBLIC,
            pairs=(
                ("Job digest", config_digest(view.planned.config)),
                ("Independent check", "verify_release.py of Dapple's documentation reads this folder without Dapple"),
                *((name, text) for name, text in versions().items()),
            ),
        ),
    )
    lead = f"{view.result.privacy.readers} Here is how to use them."
    return Section(name="reading", title="Use and glossary", lead=lead, blocks=blocks)


def _again(view: FitView) -> str:
    """Words on what costs more of the budget."""
    stated, usual = view.result.privacy, "running again on the same data does"
    return usual if stated.epoch is None else f"the budget of {stated.covers} is charged once"


_ASSIGN = """# assign.yaml, beside the folder of this report
model: THIS_FOLDER
data: {}
assign: {{id_columns: [ID]}}

dapple assign --config assign.yaml --output labels"""


def _assign(view: FitView) -> str:
    """A job that reads a table as this run did; many features are left to the reader."""
    data = view.planned.config.data.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if isinstance(data["features"], list) and len(data["features"]) > _MOST_FEATURES:
        data["features"] = "AS_IN_THE_JOB"
    read = {name: data[name] for name in ("features", "csv", "on_invalid_rows") if name in data}
    return _ASSIGN.format(flow({"path": "TABLE"} | read).replace("\n", "\n  "))


def _in_python(view: FitView) -> list[Block]:
    """Code that labels rows in memory; for encoded columns, a note that the command does so."""
    if view.planned.contract.encoder is not None:
        text = (
            "The job encodes columns, and dapple assign does the same with every table. Centers in centers.parquet "
            "are in encoded units"
        )
        text += "." if view.is_projected else "; above they are shown in those of the columns."
        return [Notice(level=Level.NOTE, text=text)]
    return [
        Code(
            title="The same in Python, for rows in memory",
            text="import numpy as np\nimport pyarrow.parquet as pq\n\n"
            'table = pq.read_table("centers.parquet")\n'
            'centers = np.array(table["center"].to_pylist())  # one row per cluster, feature units\n'
            "nearest = np.argmin([((rows - center) ** 2).sum(axis=1) for center in centers], axis=0)\n"
            'labels = table["cluster"].to_numpy()[nearest]',
        )
    ]


def _glossary(view: FitView) -> tuple[tuple[str, str], ...]:
    same = ", and the same senders" if view.result.privacy.neighboring_relation == ZEROED_OUT else ""
    return (
        (
            "Epsilon",
            "How much one unit can change what is seen: probabilities move by at most a factor of e^epsilon, up to "
            "delta.",
        ),
        ("Delta", "How much a probability may move beyond that factor."),
        (
            "Privacy unit",
            f"What is hidden: whether {view.unit.present} is there.",
        ),
        ("Neighboring data sets", f"Two data sets of which one has one {view.unit.word} more{same}."),
        ("Clipping norm", "The longest row, measured from the public center, that is not shortened."),
        ("Noise stddev", "Typical size of the noise in one number; two of them hold about 95% of it."),
        (f"Label “{Badge.RELEASED}”", "Computed from noised sums and public data; covered by the guarantee."),
        (f"Label “{Badge.PUBLIC}”", "Settings, and rows that you declared public."),
        (
            f"Label “{Badge.EVALUATION}”",
            "Computed from private rows without noise. This report has none; reports of evaluations do.",
        ),
    )
