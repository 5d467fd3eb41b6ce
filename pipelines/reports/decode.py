"""The `decode` job: a model from a collection of private reports."""

import dataclasses
import functools
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.jobs.job import Job, Outcome, Run
from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
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
from dapple_dp.pipelines.reports import outputs as report_outputs
from dapple_dp.pipelines.reports.shuffle import too_few
from dapple_dp.pipelines.reports.source import check_shuffled, find_reports
from dapple_dp.pipelines.run.flags import OUTPUT_FLAGS
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import spilling
from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.model import ClusterModel, model_from_tables
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.privacy.statement import DEVICES
from dapple_dp.schemas.reports.config import DecodeConfig, load_decode_config
from dapple_dp.schemas.reports.parameters import ReportParameters, ReportVariant
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.numerics.kmeans.edges import at_sphere
from dapple_dp.transforms.numerics.reports.mechanism import codeword_moments
from dapple_dp.transforms.reports.batches import ReadReports
from dapple_dp.transforms.reports.decode import DecodedBatch, DecodeParams, DecodeReports

_MOST_FEATURES = 8
_FOUND = "found.json"
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedDecode:
    """A job that is ready to run.

    Attributes:
      config: the job.
      path: path of the reports.
      parameters: public parameters of the collection.
    """

    config: DecodeConfig
    path: str
    parameters: ReportParameters


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodeResult:
    """The decoded model, and the number of distinct reports used."""

    model: ClusterModel
    n_reports: int


def _plan(run: Run[DecodeConfig]) -> PlannedDecode:
    """Reads the public parameters of the reports; reports of mode shuffle must come from a shuffler."""
    config = run.settings
    source = find_reports(config, str(config.reports.path), "reports.path")
    check_shuffled(source, report_outputs.digest(source.parameters))
    _LOGGER.info("run %s: decoding reports", run.options.run_id)
    return PlannedDecode(config=config, path=source.path, parameters=source.parameters)


def build(root: beam.Pipeline, job: PlannedDecode, folder: str, spill_folder: str | None) -> None:
    """Adds the job to an empty pipeline.

    Args:
      root: an empty pipeline.
      job: the planned job.
      folder: private folder for the decoded model.
      spill_folder: see `dapple_dp.transforms.reports.batches.GroupReports`.
    """
    public = job.parameters
    params = DecodeParams(parameters=public, seed=job.config.seed)
    batches = root | "Reports" >> ReadReports(path=job.path, parameters=public)
    decoded = batches | "Decode" >> DecodeReports(params=params, spill_folder=spill_folder)
    _ = decoded | "Write" >> beam.Map(_write, folder)


def _write(batch: DecodedBatch, folder: str) -> None:
    if batch.model is not None:
        write_bytes(join(folder, CENTERS_FILE), table_bytes(batch.model.centers_table()))
    write_bytes(join(folder, _FOUND), json.dumps(batch.n_reports).encode())


def _work(run: Run[DecodeConfig], job: PlannedDecode) -> DecodeResult:
    """Decodes the reports; `centers.parquet` is in the staging folder afterwards.

    Raises:
      InputError: if there are no reports, or fewer than the guaranteed minimum of a shuffled batch.
    """
    batch = decode_reports(run, job)
    if not batch.n_reports:
        raise InputError(f"reports.path must hold at least one report, got none in {job.path}; check the path.")
    if batch.model is None:
        raise too_few(job.parameters, batch.n_reports)
    return DecodeResult(model=batch.model, n_reports=batch.n_reports)


def decode_reports(run: Run[Any], job: PlannedDecode) -> DecodedBatch:
    """Decodes reports into the staging folder; returns no model if there are too few of them."""
    options, folder = run.options.beam, run.folder.staging
    with spilling(folder, options) as spill:
        add = functools.partial(build, job=job, folder=folder, spill_folder=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC))
    found = join(folder, _FOUND)
    if not STORE.exists(found):
        return DecodedBatch(n_reports=0, model=None)
    n_reports = untrusted.read_json(found, int, untrusted.staged_refusal(found))
    STORE.delete(found)
    centers = join(folder, CENTERS_FILE)
    if not STORE.exists(centers):
        return DecodedBatch(n_reports=n_reports, model=None)
    table = untrusted.read_table(centers, untrusted.staged_refusal(centers), TableForm.by_size())
    model = model_from_tables(table, releases_to_table([]))
    return DecodedBatch(n_reports=n_reports, model=model)


def _stage(run: Run[DecodeConfig], job: PlannedDecode, result: DecodeResult) -> Outcome:
    return stage_outputs(run, job, result, {})


def stage_outputs(run: Run[Any], job: PlannedDecode, result: DecodeResult, more: Mapping[str, Any]) -> Outcome:
    """Stages the files that accompany the centers.

    Args:
      run: run whose staging folder holds the centers.
      job: the job that decoded.
      result: its result.
      more: further entries for `privacy.json`.
    """
    folder, parameters, n_reports = run.folder, job.parameters, result.n_reports
    folder.adopt(CENTERS_FILE)
    folder.write_privacy({**report_outputs.privacy_json(parameters), **more})
    folder.write("deployment.yaml", report_outputs.deployment_yaml(parameters, n_reports))
    stamp = RunStamp.today(run.options.run_id, config_digest(job.config), None)
    folder.write_report(*render(parameters, result.model, n_reports, stamp))
    manifest = report_outputs.decode_manifest(parameters, job.config, n_reports)
    return Outcome(report_outputs.spent(parameters), manifest)


def render(parameters: ReportParameters, model: ClusterModel, n_reports: int, stamp: RunStamp | None = None) -> Drawn:
    """Renders the report of a finished run, from private reports and public parameters only."""
    return render_page("Clustering of private reports", lambda: page(parameters, model, n_reports, stamp))


def page(parameters: ReportParameters, model: ClusterModel, n_reports: int, stamp: RunStamp | None = None) -> Page:
    """Builds the page of a run."""
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


def _label(parameters: ReportParameters) -> PrivacyLabel:
    guarantee = parameters.guarantee
    alone = f"{guarantee.local_epsilon:.6g}, for anyone who sees it"
    return PrivacyLabel(
        epsilon=f"{guarantee.epsilon:.4g}",
        delta=f"{guarantee.delta:.3g}",
        meaning=change_words(
            "What one client's vector is",
            "any result",
            "two vectors",
            guarantee.epsilon,
            guarantee.delta,
            DEVICES,
        ),
        pairs=(
            ("Privacy unit", "client: its one report"),
            ("Neighboring data sets", "replace one client's vector"),
            ("Epsilon of a single report", alone),
            ("Trust", f"{guarantee.mode}: {report_outputs.statement(parameters).actors}"),
            ("Radius", f"{parameters.radius:.4g} (given in the job)"),
        ),
    )


def _clusters(parameters: ReportParameters, model: ClusterModel, n_reports: int) -> Section:
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
        title="Centers, by the features that distinguish them most",
        badge=Badge.RELEASED,
        columns=("Cluster", "Noisy size", *(summary.names[feature] for feature in top)),
        rows=rows,
    )
    return Section(
        name="clusters",
        title="Clusters",
        lead="Sizes and centers are estimates from randomized reports. How far noise moves a size is not stated.",
        blocks=(*_warnings(parameters, n_reports), *_shortened(parameters, model, n_reports), table),
    )


def _warnings(parameters: ReportParameters, n_reports: int) -> tuple[Notice, ...]:
    if parameters.variant is ReportVariant.PAPER:
        return ()
    error = _expected_error(parameters, n_reports)
    if error < 0.25:
        return ()
    text = (
        f"Noise moves a center by about {math.sqrt(error):.2f} of the radius before shrinkage. More reports, fewer "
        "clusters or a larger epsilon would help."
    )
    return (Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED),)


def _shortened(parameters: ReportParameters, model: ClusterModel, n_reports: int) -> tuple[Notice, ...]:
    """Warns if nearly all centers are as long as the radius to which vectors are clipped, as far as noise shows."""
    if parameters.variant is ReportVariant.PAPER or not n_reports:
        return ()
    noise = parameters.radius * math.sqrt(_expected_error(parameters, n_reports) / parameters.n_features)
    judged, there = at_sphere(model.centers, parameters.radius, np.full(len(model.centers), noise))
    sizes = np.maximum(model.noisy_sizes, 0.0)
    if not judged.any() or not sizes[there].sum() >= 0.95 * sizes.sum():
        return ()
    text = (
        f"Nearly all centers are as long as the radius, {parameters.radius:.4g}, as far as noise allows: nearly all "
        "vectors were shortened to it, unless they were brought to this length on purpose. Check the unit, and give a "
        "larger radius to the next collection."
    )
    return (Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED),)


def _expected_error(parameters: ReportParameters, n_reports: int) -> float:
    """Expected squared error of an average cluster's center by noise alone, in squared radii."""
    mean = codeword_moments(parameters.choices[-1][0]).mean
    typical = n_reports / parameters.n_clusters
    if parameters.depth == 0:
        return parameters.n_features / (typical * mean**2)
    levels = 1.0 if parameters.even_subsets else 1.0 + parameters.depth / 3.0
    return n_reports * levels * parameters.n_features / (typical * mean) ** 2


def _collection(parameters: ReportParameters, n_reports: int) -> Section:
    pairs = [
        ("Distinct reports", f"{n_reports:,}"),
        ("Guaranteed minimum", f"{parameters.guarantee.min_batch:,}"),
        ("Levels of the tree", str(parameters.depth) if parameters.depth else "none: points and a mixture"),
        *_mechanism(parameters),
        ("Public key", parameters.key.hex()),
    ]
    facts = Facts(title="Public parameters", badge=Badge.PUBLIC, pairs=tuple(pairs))
    return Section(name="collection", title="The collection", lead="What all encoders agree on.", blocks=(facts,))


def _mechanism(parameters: ReportParameters) -> list[tuple[str, str]]:
    choice, _ = parameters.choices[-1]
    return [
        ("Choice", f"{choice.near} of {choice.size} favored, with probability {choice.threshold / 2.0**64:.4f}"),
        ("Most likely over least likely", f"{float(choice.ratio):.6g} = e^{np.log(float(choice.ratio)):.6g}"),
    ]


JOB = Job(
    "decode",
    load_decode_config,
    _plan,
    _work,
    _stage,
    Zone.PUBLIC,
    shows="report.html",
    flags=(*OUTPUT_FLAGS, "--once"),
)
