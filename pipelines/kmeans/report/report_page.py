"""`report.html` of `fit`: one file, no network, that people want to open."""

from pipelines.jobs.forewarnings import plural
from pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit
from pipelines.kmeans.report.clusters import counted_words
from pipelines.kmeans.report.fit_view import FitView
from pipelines.kmeans.report.sections import fit_sections
from pipelines.ledger.remaining import Remaining, left_words
from pipelines.page.page import Page, PrivacyLabel, meaning, render_page
from pipelines.page.stamp import RunStamp
from schemas.choices import ClippingRule
from schemas.privacy.noise_shares import ZEROED_OUT
from transforms.kmeans.protocols import PROTOCOLS


def render(
    planned: PlannedFit, result: FitResult, remaining: Remaining | None = None, stamp: RunStamp | None = None
) -> str:
    """The report of a finished run; everything in it is released or public.

    Args:
      planned: the job.
      result: what it released.
      remaining: of the budget of the data set; None leaves the reader to the ledger, if there is one.
      stamp: of the run; None for a page of no run.
    """
    spent = f"({result.privacy.epsilon:.6g}, {result.privacy.delta:.3g})"
    lead = f"This report could not be written. The run spent {spent}; its other files are whole."
    return render_page("Private clustering", lambda: page(FitView.of(planned, result), remaining, stamp), lead, stamp)


def page(view: FitView, remaining: Remaining | None, stamp: RunStamp | None = None) -> Page:
    """The page of a run."""
    config, summary = view.planned.config, view.summary
    algorithm = PROTOCOLS[config.algorithm].title
    clusters, features = plural(summary.n_clusters, "cluster"), plural(summary.n_features, "feature")
    return Page(
        title=f"Private clustering of {config.data.name}" if config.data.name else "Private clustering",
        lead=f"{clusters} of {features}, found by {algorithm} from noised sums. No row of the private data, and "
        "no exact count of rows, is in this report.",
        tags=(
            algorithm,
            f"{config.privacy.allocation} allocation",
            f"{plural(len(view.planned.rounds), 'round')}, {plural(len(view.releases), 'release')}",
        ),
        label=_label(view, remaining),
        sections=fit_sections(view),
        stamp=stamp,
    )


_ZEROED = "one unit is left out of its sender's statistic; who sends is public"


def _label(view: FitView, remaining: Remaining | None) -> PrivacyLabel:
    plan, asked = view.planned.plan, view.planned.config.privacy
    zeroed = view.result.privacy.neighboring_relation == ZEROED_OUT
    covers = view.result.privacy.covers
    spent = f"{plan.epsilon:.6g} spent of {asked.epsilon:.6g} asked for"
    together = "" if covers is None else f" This holds for {covers}."
    return PrivacyLabel(
        epsilon=f"{plan.epsilon:.4g}",
        delta=f"{plan.delta:.3g}",
        meaning=meaning(plan.epsilon, plan.delta, plan.unit, senders_public=zeroed) + together,
        pairs=(
            ("Privacy unit", f"{plan.unit}: {view.unit.whole}"),
            ("Neighboring data sets", _ZEROED if zeroed else "add or remove one unit"),
            ("Budget of this run", spent) if covers is None else (f"Budget of {covers}", f"{spent}, charged once"),
            ("For discrete noise", f"{plan.discretization_slack:.1g} of delta"),
            ("Trust", f"{view.result.privacy.trust}: {view.result.privacy.actors}"),
            ("Sizes", f"noisy, ± {view.size_noise} {view.unit.size}: {counted_words(view)}"),
            ("Clipping norm", f"{view.lattice.clipping_norm:.4g} ({_norm_source(view)})"),
            ("Budget left", left_words(view.planned.config.ledger, remaining)),
        ),
    )


def _norm_source(view: FitView) -> str:
    norm = view.planned.config.clipping.norm
    if norm is ClippingRule.PRIVATE:
        return "released: a noisy quantile of the rows' norms"
    if norm is ClippingRule.DOMAIN:
        return "half the diagonal of the domain"
    return "radius of the public server data" if norm is ClippingRule.SERVER_RADIUS else "given in the job"
