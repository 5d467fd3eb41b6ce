"""Removed settings and values; a job that uses one gets an error with the replacement."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Gone(NamedTuple):
    """A removed setting.

    Attributes:
      instead: completes "SETTING was removed; ...".
      default: its last default, as JSON, which digests of jobs still include.
      beside: digests include it only next to this setting of the section or job; empty if they never include it.
      where: value that `beside` must have for that; None for any.
    """

    instead: str
    default: Any = None
    beside: str = ""
    where: str | None = None


_OF_STREAM = "use `dapple stream`, whose section stream has the calendar of the windows"
_TO_ENTRY = "write it into deployment.yaml beside the release"
_OF_ALGORITHM_5 = "leave it out: Algorithm 5 of the paper is code of benchmarks/papers, and no better on data"
_OF_IMAGES = "use mlp; `python -m benchmarks.papers --draw r-dpcfl-cnn` runs networks for images"
_OF_BASELINES = "or run `python -m benchmarks.papers --draw feddp-record` for the figure of the paper"
_FIXED_START = "leave it out: a private start takes half of the budget"
_OF_R_DPCFL = "is code of benchmarks/papers, to compare R-DPCFL with"
_BASELINES = "global ifca local mr_mtl oracle"
GONE: Mapping[str, Gone] = {
    "clipping.bounds": Gone(
        "leave it out: bounds of clients are medians over server data",
        None,
        "norm",
    ),
    "clipping.quantile": Gone("leave it out: a private norm is the .95 quantile of the rows' norms", 0.95, "norm"),
    "clipping.share": Gone("leave it out: a private norm takes .05 of the budget", 0.05, "norm"),
    "clustering.pull": Gone(f"leave it out: MR-MTL {_OF_R_DPCFL}", 0.002, "selection_share"),
    "clustering.start": Gone(f"leave it out: IFCA {_OF_R_DPCFL}", "identical", "min_separation"),
    "clustering.view": Gone("leave it out: principal components show clusters best", "pca", "min_separation"),
    "deployment.access_controls": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.data_curator_name": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.data_curator_type": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.data_product_region": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.data_product_sector": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.evidence_sources": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.publication_date": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.registry_author": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.url_slug": Gone(_TO_ENTRY, None, "approved_by"),
    "deployment.utility": Gone(_TO_ENTRY, None, "approved_by"),
    "dp_lloyd.clip_moves": Gone("leave it out: a center moves at most by the radius", True, "domain"),
    "dp_lloyd.client_radius": Gone("leave it out: a client's sums are bounded by half the radius", 0.5, "domain"),
    "dp_lloyd.post_process": Gone("leave it out: centers are folded into the domain", "fold", "domain"),
    "dp_lloyd.radius": Gone("leave it out: the first round has half the diagonal of the domain", "step", "domain"),
    "dp_lloyd.radius_factor": Gone("leave it out: it was never better than .8", 0.8, "domain"),
    "dp_lloyd.start_share": Gone(_FIXED_START, 0.5, "domain"),
    "dp_lloyd.update": Gone("leave it out: moves are shrunken after a private start, and no others", None, "domain"),
    "dp_lloyd.variant": Gone(
        "leave it out for fast; the others are code of benchmarks/papers, and algorithm optimal needs no privacy",
        "fast",
        "domain",
    ),
    "dp_medians": Gone(
        "leave it out: it was never better otherwise",
        {"least_radius": 1e-3, "first_length": 0.25},
        "algorithm",
        "dp_medians",
    ),
    "epoch": Gone(_OF_STREAM),
    "feddp_kmeans.assignment": Gone(_OF_ALGORITHM_5, "nearest", "restarts"),
    "feddp_kmeans.guards": Gone("use preset: published for the method as printed", True, "restarts"),
    "feddp_kmeans.init": Gone("use algorithm central_tree with lloyd.steps", "feddp_init", "restarts"),
    "feddp_kmeans.reduce_diameter": Gone(_OF_ALGORITHM_5, None, "restarts"),
    "feddp_kmeans.simplify": Gone(_OF_ALGORITHM_5, None, "restarts"),
    "k_fed": Gone("leave it out: k-FED is code of benchmarks/papers"),
    "keep_staging": Gone(
        "leave it out: copies of private rows go with the run; dapple prepare makes one", False, "lloyd"
    ),
    "names.per_unit": Gone("use names.most_per_row"),
    "names.share": Gone("leave it out: names take .4 of the budget", 0.4, "most_per_row"),
    "optimal": Gone("leave it out: 20 runs on 20,000 rows, and 15 rounds over all rows for the best four"),
    "prepare": Gone(
        "leave it out: a fit chooses its shards; dapple prepare takes prepare.shards", {"shards": "auto"}, "encode"
    ),
    "recurring.short_memory": Gone("leave it out: it is a sixth of recurring.memory", None, "warm_start"),
    "reports.branching": Gone("leave it out: nodes above 1.5 times an average cluster are split", "fixed", "mode"),
    "server_data.csv": Gone("leave it out: data.csv says how all CSV files of the job are written"),
    "spherical.client_norm": Gone("leave it out: a client's sums are bounded by half the clipping norm", 0.5, "steps"),
    "tree.directions": Gone("leave it out: half-spaces lie in a noisy principal subspace", "subspace", "radius"),
    "state": Gone("leave it out: only a stream of clients has lists of them"),
    "training.first_copies": Gone("leave it out: copies of images hid clusters", 1, "clipping_norm"),
    "stream.short_memory": Gone("leave it out: it is a sixth of stream.memory"),
}
"""Removed settings by dotted name."""
GONE_VALUES: Mapping[tuple[str, str], str] = {
    **{("algorithm", name): f"use r_dpcfl: {name} {_OF_R_DPCFL}" for name in _BASELINES.split()},
    ("algorithm", "k_fed"): f"use optimal, {_OF_BASELINES}",
    ("algorithm", "server_kmeanspp"): f"use feddp_kmeans, {_OF_BASELINES}",
    ("algorithm", "server_lloyds"): f"use feddp_kmeans, {_OF_BASELINES}",
    ("algorithm", "sphere_packing"): f"use central_tree, {_OF_BASELINES}",
    ("algorithm", "windows"): _OF_STREAM,
    ("dp_lloyd.init", "server_kmeanspp"): "use candidates, which uses server rows, too",
    ("privacy.accountant", "paper_code"): "leave privacy.accountant out: the same divergences give a smaller epsilon",
    ("privacy.shares", "a section"): "use auto, which simulates shares on the server data, or leave it out",
    ("training.model", "cnn"): _OF_IMAGES,
    ("training.model", "resnet"): _OF_IMAGES,
    ("reports.variant", "split_and_mix"): "leave reports.variant out: a client sends one report of ten bytes",
}
"""Removed values by setting and value; completes "SETTING no longer accepts VALUE; ..."."""


def with_defaults(content: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Returns a job, as JSON, with the last defaults of removed settings, at any depth.

    A job that never set them keeps its digest, and its run can be resumed.

    Args:
      content: settings of a section or a job.
      within: name of the section; empty for a job.
    """
    result = {
        name: with_defaults(value, name) if isinstance(value, Mapping) else value for name, value in content.items()
    }
    for name, gone in GONE.items():
        section, _, leaf = name.rpartition(".")
        here = section == within and gone.beside in content and leaf not in result
        if here and gone.where in (None, content[gone.beside]):
            result[leaf] = gone.default
    return result
