"""`report.html` of `clustered_fl`: the clients' guarantee, their clusters, and the accuracy of the models."""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dapple_dp.pipelines.jobs.forewarnings import forewarnings, plural, sentence
from dapple_dp.pipelines.page.page import (
    Badge,
    Bar,
    Drawn,
    Facts,
    Level,
    Notice,
    Page,
    PrivacyLabel,
    Section,
    Table,
    change_words,
    render_page,
)
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.schemas.choices import Adjacency, WhenScarce
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig
from dapple_dp.schemas.clustered_fl.plan import TRUST, TRUSTED, SiloStatement
from dapple_dp.schemas.clustered_fl.records import FederatedState, Federation
from dapple_dp.schemas.privacy.statement import KEY_STREAM
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import row_norm
from dapple_dp.transforms.numerics.clustered_fl.round import is_apart

_MOST_CLIENTS = 200
_FIRST_ROUNDS = {
    WhenScarce.APART: "ordinary batches, a model for every client",
    WhenScarce.CLUSTER: "full batches",
    WhenScarce.ONE_MODEL: "full batches",
}


class Judged(NamedTuple):
    """Correct rows and total rows of one client in the evaluation data."""

    client: str
    correct: int
    rows: int


class FederationView(NamedTuple):
    """Content of the report.

    Attributes:
      config: the job.
      federation: public parameters of the training.
      state: state after the last round.
      groups: public group of each client; empty strings without groups.
      statement: the guarantee.
      judged: counts of the clients that have evaluation rows; empty without evaluation.
      stamp: run id and versions at the bottom of the page; None if the page belongs to no run.
    """

    config: ClusteredFLConfig
    federation: Federation
    state: FederatedState
    groups: tuple[str, ...]
    statement: SiloStatement
    judged: tuple[Judged, ...]
    stamp: RunStamp | None = None


def render(view: FederationView) -> Drawn:
    """Renders the report of a finished run; everything not marked as evaluation is released or public."""
    return render_page("Clustered federated learning", lambda: page(view))


def page(view: FederationView) -> Page:
    """Builds the page of a run."""
    config, federation = view.config, view.federation
    models = plural(len(np.unique(view.state.assignments)), "model")
    judged = " Accuracy is of the evaluation data and not private." if view.judged else ""
    return Page(
        title=f"Federated learning of {config.data.name}" if config.data.name else "Clustered federated learning",
        lead=f"{federation.n_clients} clients trained {models} by R-DPCFL; each client's updates were made private "
        f"for its own rows before they were added up.{judged}",
        tags=("R-DPCFL", f"{config.training.model} models", f"{config.training.rounds} rounds", TRUST),
        label=_label(view),
        sections=(*_accuracy(view), _clusters(view), _training(view), _guarantee(view)),
        stamp=view.stamp,
    )


def _label(view: FederationView) -> PrivacyLabel:
    statement = view.statement
    replaced = statement.adjacency is Adjacency.REPLACE_ONE
    change = "replacing one row" if replaced else "one row more or less"
    return PrivacyLabel(
        epsilon=f"{statement.epsilon:.4g}",
        delta=f"{statement.delta:.3g}",
        meaning=change_words(
            f"For every client, {change}",
            "all that it sends in this run",
            "a row",
            statement.epsilon,
            statement.delta,
            KEY_STREAM,
        ),
        pairs=(
            ("Privacy unit", "record: one row of one client"),
            ("Neighboring data sets", "replace one row" if replaced else "add or remove one row"),
            ("Epsilon", f"{statement.epsilon:.6g} spent of {view.config.privacy.epsilon:.6g} asked for, per client"),
            ("Trust", f"{TRUST}: {TRUSTED}"),
            ("Public", "the clients' ids and their declared numbers of rows"),
            ("Accountant", statement.accountant),
        ),
    )


def _accuracy(view: FederationView) -> tuple[Section, ...]:
    """The section on accuracy by group of clients; empty without evaluation."""
    if not view.judged:
        return ()
    names = [silo.client_id for silo in view.federation.silos]
    place = {name: index for index, name in enumerate(names)}
    by_group: dict[str, list[Judged]] = collections.defaultdict(list)
    for each in view.judged:
        index = place[each.client]
        by_group[view.groups[index] or f"cluster {view.state.assignments[index]}"].append(each)
    rows = [_accuracy_row(group, own) for group, own in sorted(by_group.items())]
    table = Table(
        title="Accuracy by group of clients",
        badge=Badge.EVALUATION,
        columns=("Group", "Clients", "Evaluation rows", "Accuracy", "Worst client"),
        rows=(*rows, _accuracy_row("all clients", view.judged)),
        note="A client is judged by the model of its own cluster. These numbers are exact counts on the evaluation "
        "data; no guarantee covers them.",
    )
    lead = "Don't share this section if the evaluation data are private."
    return (Section(name="accuracy", title="Accuracy", lead=lead, blocks=(table,)),)


def _accuracy_row(group: str, judged: Sequence[Judged]) -> tuple[str | Bar, ...]:
    """One row of the table; the accuracy is over all rows of the group."""
    correct, total = sum(each.correct for each in judged), sum(each.rows for each in judged)
    worst = min(each.correct / each.rows for each in judged)
    share = correct / total
    return group, str(len(judged)), f"{total:,}", Bar(f"{share:.1%}", share), f"{worst:.1%}"


def _clusters(view: FederationView) -> Section:
    assignments, silos = view.state.assignments, view.federation.silos
    shown = min(len(silos), _MOST_CLIENTS)
    members = collections.Counter(assignments.tolist())
    sizes = Table(
        title="Models",
        badge=Badge.RELEASED,
        columns=("Model", "Clients"),
        rows=tuple((str(model), Bar(str(n), n / len(silos))) for model, n in sorted(members.items())),
    )
    clients = Table(
        title="Clients",
        badge=Badge.RELEASED,
        columns=("Client", "Model", "Declared rows"),
        rows=tuple((silos[i].client_id, str(assignments[i]), f"{silos[i].n_rows:,}") for i in range(shown)),
        folded=True,
        note="" if shown == len(silos) else f"The first {shown} of {len(silos)}; assignments.parquet has all.",
    )
    lead = "Every number here is computed from private updates, and from private answers where clients chose a model."
    return Section(name="clusters", title="Clusters", lead=lead, blocks=(_separation(view), sizes, clients))


def _separation(view: FederationView) -> Notice | Facts:
    """The separation of the first updates."""
    state = view.state
    if is_apart(view.federation, state):
        return _own_models(view)
    if len(state.models) == 1:
        text = (
            "No clusters stood out from the noise in the first updates, so all clients trained one model. A larger "
            "epsilon, more rows per client or a smaller first_round_noise_ratio would help."
        )
        return Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED)
    pairs = (
        ("First round", _FIRST_ROUNDS[view.federation.clustering.when_scarce]),
        ("Smallest separation of clusters", f"{state.separation:.3g}"),
        ("Last round with sampled clusters", str(state.switch_round)),
        ("Iterations of the mixture", str(state.em_iterations)),
    )
    return Facts(title="Clusters of the first updates", badge=Badge.RELEASED, pairs=pairs)


def _own_models(view: FederationView) -> Notice | Facts:
    """Summary for clients that started with a separate model each."""
    state = view.state
    shared = int((np.bincount(state.assignments)[state.assignments] > 1).sum())
    if not shared:
        text = (
            "Under noise, no client's rows showed that another model does as well as its own, so every client trained "
            "its own model. A larger epsilon or more rows per client would help."
        )
        return Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED)
    pairs = (
        ("First round", _FIRST_ROUNDS[view.federation.clustering.when_scarce]),
        ("Clients that share a model", str(shared)),
        ("Clients with a model of their own", str(len(state.assignments) - shared)),
    )
    return Facts(title="Whose model a client has", badge=Badge.RELEASED, pairs=pairs)


def _training(view: FederationView) -> Section:
    training, shape = view.config.training, view.federation.shape
    pairs = (
        ("Model", f"{training.model}, {shape.n_features} features, {shape.n_classes} classes"),
        ("Parameters", f"{shape.n_parameters:,}"),
        ("Rounds", str(training.rounds)),
        ("Local epochs", str(training.local_epochs)),
        ("Expected batch", str(training.batch_size)),
        ("Learning rate", f"{training.learning_rate:g}"),
        ("Largest norm of a row", f"{row_norm(shape.n_features, shape.feature_norm):g}"),
        ("Clipping norm of a gradient", f"{training.clipping_norm:g}"),
    )
    facts = Facts(title="Public settings", badge=Badge.PUBLIC, pairs=pairs)
    return Section(name="training", title="Training", lead="What all clients agree on.", blocks=(facts,))


def _guarantee(view: FederationView) -> Section:
    rows = tuple(
        (silo.client_id, f"{silo.n_rows:,}", f"{silo.first_round_multiplier:.4g}", f"{silo.noise_multiplier:.4g}")
        for silo in view.federation.silos[:_MOST_CLIENTS]
    )
    table = Table(
        title="Noise of every client",
        badge=Badge.PUBLIC,
        columns=("Client", "Declared rows", "Noise multiplier, first round", "Later rounds"),
        rows=rows,
        folded=True,
        note="privacy.json lists the events of every client.",
    )
    lead = "The noise multiplier is the noise stddev of a summed gradient over its sensitivity."
    said = (
        Notice(level=Level.WARNING, text=sentence(text), badge=Badge.PUBLIC) for text in forewarnings(view.config) or ()
    )
    return Section(name="guarantee", title="Guarantee", lead=lead, blocks=(*said, table))
