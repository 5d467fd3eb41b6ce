"""Audited code: every class and function that may appear in a job's graph, and its rule.

To add one, read what it does with each input, list it here under the rule that fits, and write a test that uses it out
of place. A listed transform is audited as a whole, with everything inside it. The checker looks into one that is not
listed, and everything inside must be listed. `known_objects.py` says which code counts as the listed one.
"""

import dataclasses
import enum


class Level(enum.IntEnum):
    """The privacy of a collection's elements; the highest level of several inputs counts.

    PUBLIC: public data, releases, and what follows from them.
    MASKED_RELEASE: a masked sum with its noise: unmasked, it is a release.
    MASKED: masked without noise: uniform to anyone without the masks, exact to anyone who has them.
    PRIVATE: anything else that was computed from private input.
    """

    PUBLIC = 0
    MASKED_RELEASE = 1
    MASKED = 2
    PRIVATE = 3

    @property
    def words(self) -> str:
        """Its name in messages."""
        return ("public data and releases", "masked sums with noise", "masked messages", "exact private data")[self]


class Role(enum.StrEnum):
    """The checks of a step beyond its levels.

    STEP: none.
    CARRY: passes on statistics, or sums of them.
    SUM: adds up statistics by key; one sum per plan if they are gathered under one.
    COPY: may give an element several times, so no sum of its output has the stated sensitivity.
    STATISTIC: the plan of its round must have at least the sensitivity of its statistic.
    MESSAGES: elements are statistics of others, who vouch for their sensitivity.
    SHARE: adds one sender's share of the noise; its plan must be that of the statistic.
    MASK: the statistic must have the share of noise that was promised.
    NOISE: its plan must be that of the statistic, and counts as spent.
    JOIN: its input must be the sum of statistics that all have their shares; their plan counts as spent.
    DECLARED: a mechanism of its own, a `DeclaredMechanism`.
    TRUSTED: allowed only in jobs of the trusted zone.
    """

    STEP = "step"
    CARRY = "carry"
    SUM = "sum"
    COPY = "copy"
    STATISTIC = "statistic"
    MESSAGES = "messages"
    SHARE = "share"
    MASK = "mask"
    NOISE = "noise"
    JOIN = "join"
    DECLARED = "declared"
    TRUSTED = "trusted"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The inputs that audited code may get, and the privacy of its output.

    Attributes:
      takes: highest level of a main input.
      sides: highest level of a side input. In jobs of the trusted zone, code that takes private data may get any,
        unless it is part of a round.
      gives: level of the main output (of all outputs unless `role` is NOISE); None for the highest of the inputs.
      role: see `Role`.
      gathers: True if all statistics of a plan leave with one key.
    """

    takes: Level
    sides: Level = Level.PUBLIC
    gives: Level | None = None
    role: Role = Role.STEP
    gathers: bool = False


SOURCE = Rule(takes=Level.PUBLIC, gives=Level.PRIVATE)
"""Reads private input."""
PUBLIC = Rule(takes=Level.PUBLIC)
"""Gets nothing private: server steps, public sinks, and reports that are private on their own."""
PASS = Rule(takes=Level.PRIVATE)
"""Gives elements as private as its inputs."""
CARRY = Rule(takes=Level.PRIVATE, role=Role.CARRY)
"""Passes on statistics, or sums of them."""
GATHER = dataclasses.replace(CARRY, gathers=True)
"""Passes on statistics, all under one key."""
SUM = Rule(takes=Level.PRIVATE, role=Role.SUM)
"""Adds up statistics."""
COPY = Rule(takes=Level.PRIVATE, role=Role.COPY)
"""May give an element several times: in several windows, or at several times of one."""
COLLECT = Rule(takes=Level.PRIVATE, sides=Level.MASKED)
"""Puts all elements into one; for empty input, Beam broadcasts that one itself."""
STATISTIC = Rule(takes=Level.PRIVATE, gives=Level.PRIVATE, role=Role.STATISTIC)
"""Computes statistics of shards; `stated_sensitivity.py` has their sensitivities."""
KEYED_STATISTIC = dataclasses.replace(STATISTIC, gathers=True)
"""Keys each statistic by the number of its run."""
NOISE = Rule(takes=Level.PRIVATE, gives=Level.PUBLIC, role=Role.NOISE)
"""Adds the noise of a release."""
SHARE = Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.PRIVATE, role=Role.SHARE)
"""Adds one sender's share of the noise: the sum stays as private as before."""
DECLARED = Rule(takes=Level.PRIVATE, gives=Level.PUBLIC, role=Role.DECLARED)
"""A `DeclaredMechanism`."""
TRUSTED = Rule(takes=Level.PRIVATE, gives=Level.PRIVATE, role=Role.TRUSTED)
"""Code of the trusted zone: refused in a job whose outputs are public."""

_MASKED_MESSAGES = Rule(takes=Level.PUBLIC, gives=Level.MASKED, role=Role.MESSAGES)
_MASK = Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED, role=Role.MASK)
_MASKED_STEP = Rule(takes=Level.MASKED, sides=Level.MASKED)
_MASKED_CARRY = Rule(takes=Level.MASKED, role=Role.CARRY)
_MASKED_SUM = Rule(takes=Level.MASKED, role=Role.SUM)
_MASKED_SINK = Rule(takes=Level.MASKED)
_MASKED_NOISE = Rule(takes=Level.MASKED, gives=Level.MASKED_RELEASE, role=Role.NOISE)
_JOIN = Rule(takes=Level.MASKED, sides=Level.MASKED, gives=Level.MASKED_RELEASE, role=Role.JOIN)
_RELEASE_SINK = Rule(takes=Level.MASKED_RELEASE)
_LISTS = Rule(takes=Level.PUBLIC, gives=Level.MASKED)
_UNMASK = Rule(takes=Level.MASKED_RELEASE, sides=Level.MASKED, gives=Level.PUBLIC)
_SEND = Rule(takes=Level.PRIVATE, gives=Level.MASKED)
_SEND_LISTED = Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED)
_SEND_PUBLIC = Rule(takes=Level.PUBLIC, sides=Level.MASKED, gives=Level.MASKED)

LISTED = (
    # Beam
    (PUBLIC, "apache_beam.transforms.core", "Create Impulse"),
    (CARRY, "apache_beam.transforms.core", "Flatten"),
    (PASS, "apache_beam.transforms.core", "GroupByKey"),
    (COPY, "apache_beam.transforms.core", "WindowInto"),
    (PASS, "apache_beam.transforms.util", "CoGroupByKey"),
    (CARRY, "apache_beam.transforms.util", "Reshuffle"),
    (COLLECT, "apache_beam.transforms.combiners", "ToListCombineFn"),
    # Reading
    (SOURCE, "dapple_dp.transforms.tables.read", "ListShards DigestFiles"),
    (PASS, "dapple_dp.transforms.tables.read", "CheckRows"),
    (PASS, "dapple_dp.beam.rows", "ReadFn BlocksFn"),
    (PUBLIC, "dapple_dp.beam.windows", "EachWindowFn"),
    # Rounds
    (STATISTIC, "dapple_dp.transforms.on_beam.round", "_StatisticFn"),
    (KEYED_STATISTIC, "dapple_dp.transforms.trusted_zone.sweep_cells", "_CellStatisticsFn"),
    (SUM, "dapple_dp.transforms.trusted_zone.sweep_cells", "SumPresentVectorsFn"),
    (SUM, "dapple_dp.transforms.on_beam.exact_sums", "SumVectorsFn"),
    (CARRY, "dapple_dp.transforms.on_beam.exact_sums", "_BranchFn TotalFn"),
    (GATHER, "dapple_dp.transforms.on_beam.exact_sums", "GatherFn _GatherBranchesFn"),
    (NOISE, "dapple_dp.transforms.on_beam.noise_stage", "_AddNoiseFn _AddKeyedNoiseFn"),
    (_MASKED_NOISE, "dapple_dp.transforms.masked.noise_stages", "_AddMaskedNoiseFn"),
    (PUBLIC, "dapple_dp.transforms.masked.noise_stages", "_AddFurtherNoiseFn"),
    (SHARE, "dapple_dp.transforms.masked.noise_stages", "_AddSharesFn"),
    (_JOIN, "dapple_dp.transforms.masked.noise_stages", "_joined"),
    (PUBLIC, "dapple_dp.transforms.on_beam.round", "ServerFn"),
    (PUBLIC, "dapple_dp.transforms.rounds.bound_broadcast", "_bound_step"),
    (PUBLIC, "dapple_dp.transforms.rounds.staged_state", "_staged_step begin"),
    (PUBLIC, "dapple_dp.transforms.trusted_zone.sweep_cells", "_unpacked _broadcast _advance _model"),
    # Server steps
    (PUBLIC, "dapple_dp.transforms.kmeans.feddp_kmeans.server", "norm_step outer_product_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.feddp_kmeans.server", "weights_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.lloyd.server", "means_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.lloyd.quality", "step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.private_starts.feddp_start", "leave"),
    (PUBLIC, "dapple_dp.transforms.kmeans.private_starts.tree_start", "leave"),
    (PUBLIC, "dapple_dp.transforms.kmeans.median_starts", "_leave"),
    (PUBLIC, "dapple_dp.transforms.kmeans.dp_medians.server", "median_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.k_prototypes.server", "first_step merge_step prototypes_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.dp_lloyd.starts", "rows_step mean_step scatter_step grid_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.dp_lloyd.candidates", "scatter_step candidates_step spread_step fine_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.dp_lloyd.candidates", "server_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.dp_lloyd.server", "relative_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.spherical.server", "sums_step names_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.windows.rounds", "state_at"),
    (PUBLIC, "dapple_dp.transforms.kmeans.windows.server", "window_step"),
    (PUBLIC, "dapple_dp.transforms.kmeans.central_tree.server", "shape_step split_step leaves_step"),
    # Masked rounds: a message is uniform without its mask, and only noised sums are unmasked
    (STATISTIC, "dapple_dp.transforms.masked.clients", "_SenderStatisticsFn"),
    (_MASK, "dapple_dp.transforms.masked.clients", "_MaskFn"),
    (_MASKED_CARRY, "dapple_dp.transforms.masked.aggregation", "all_arrive"),
    (_MASKED_SUM, "dapple_dp.transforms.masked.aggregator", "SumMessagesFn"),
    (_MASKED_CARRY, "dapple_dp.transforms.masked.aggregator", "_checked"),
    (_UNMASK, "dapple_dp.transforms.masked.clients", "_UnmaskFn"),
    (_SEND, "dapple_dp.transforms.masked.pairwise_rounds", "_AdvertiseFn"),
    (_MASKED_STEP, "dapple_dp.transforms.masked.pairwise_lists", "list_everybody number_listed"),
    (_MASK, "dapple_dp.transforms.masked.pairwise_rounds", "_MaskFn"),
    (_SEND_LISTED, "dapple_dp.transforms.masked.pairwise_rounds", "_ShareFn"),
    (_MASKED_STEP, "dapple_dp.transforms.masked.pairwise_rounds", "_RevealFn"),
    (_LISTS, "dapple_dp.transforms.masked.pairwise_lists", "read_lists"),
    (_SEND, "dapple_dp.transforms.masked.pairwise_legs", "_KeysFn"),
    (_SEND_LISTED, "dapple_dp.transforms.masked.pairwise_legs", "_LettersFn"),
    (_MASK, "dapple_dp.transforms.masked.pairwise_legs", "_MessagesFn"),
    (_SEND_PUBLIC, "dapple_dp.transforms.masked.pairwise_legs", "_SharesFn"),
    (_UNMASK, "dapple_dp.transforms.masked.pairwise_legs", "_unmask"),
    (STATISTIC, "dapple_dp.transforms.masked.pairwise_legs", "_PinnedFn"),
    (TRUSTED, "dapple_dp.transforms.masked.pairwise_legs", "pin"),
    (_MASKED_STEP, "dapple_dp.pipelines.masked.pairwise_upload", "_send _hand_out"),
    (_LISTS, "dapple_dp.pipelines.masked.unmask", "_handed"),
    (_MASKED_SINK, "dapple_dp.pipelines.masked.upload", "_send"),
    (_MASKED_MESSAGES, "dapple_dp.pipelines.masked.aggregate", "_read"),
    (_RELEASE_SINK, "dapple_dp.pipelines.masked.aggregate", "_close"),
    (PUBLIC, "dapple_dp.pipelines.masked.unmask", "_keep"),
    # Public sinks
    (PUBLIC, "dapple_dp.transforms.files.publish", "_WriteModelFn"),
    (PUBLIC, "dapple_dp.pipelines.kmeans.fit_rounds", "_to_arrays"),
    (PUBLIC, "dapple_dp.transforms.profile.publish", "PublishProfile"),
    # Profiles, with the noise of PipelineDP
    (STATISTIC, "dapple_dp.transforms.profile.measure_clusters", "MeasureClusters"),
    (DECLARED, "dapple_dp.transforms.profile.pipeline_dp_noise", "AddPipelineDPNoise"),
    # Reports, private on their own
    (DECLARED, "dapple_dp.transforms.reports.encode", "EncodeReports"),
    (PUBLIC, "dapple_dp.transforms.reports.shuffle", "ShuffleReports"),
    (PUBLIC, "dapple_dp.transforms.reports.batches", "ReadArrivals ReadReports"),
    (PUBLIC, "dapple_dp.transforms.reports.decode", "DecodeReports"),
    (PUBLIC, "dapple_dp.pipelines.reports.decode", "_write"),
    # Clustered federated learning: DP-SGD per client, then post-processing
    (SOURCE, "dapple_dp.transforms.clustered_fl.labeled_clients", "ListClients"),
    (DECLARED, "dapple_dp.transforms.clustered_fl.rounds", "TrainPrivately"),
    (PUBLIC, "dapple_dp.transforms.clustered_fl.rounds", "SumUpdatesFn _server_step _to_arrays"),
    (PUBLIC, "dapple_dp.transforms.files.checkpoint", "write_arrays"),
    # Messages of a topic, copied to the trusted zone
    (TRUSTED, "dapple_dp.transforms.arrivals.consume", "CopyMessages"),
    # The trusted zone
    (TRUSTED, "dapple_dp.transforms.clustered_fl.labeled_clients", "InspectClients"),
    (TRUSTED, "dapple_dp.transforms.clustered_fl.judge_models", "JudgeModels"),
    (TRUSTED, "dapple_dp.transforms.files.private_sink", "PrivateSink"),
    (TRUSTED, "dapple_dp.transforms.tables.split_clients", "FindSplitClients CallRoll"),
    (TRUSTED, "dapple_dp.transforms.tables.group_clients", "GroupClients WriteManifest"),
    (TRUSTED, "dapple_dp.transforms.trusted_zone.assign_rows", "AssignRows"),
    (TRUSTED, "dapple_dp.transforms.trusted_zone.evaluate_models", "EvaluateModels ScoreModels WriteMetrics"),
    (TRUSTED, "dapple_dp.transforms.trusted_zone.pooled_kmeans", "ClusterPooledRows"),
    (TRUSTED, "dapple_dp.pipelines.kmeans.plan.file_digests", "_write_block"),
    (TRUSTED, "dapple_dp.pipelines.tables.client_staging", "_write_answer"),
    (TRUSTED, "dapple_dp.pipelines.trusted_zone.pooled_fit", "_write_centers"),
    (PUBLIC, "dapple_dp.pipelines.trusted_zone.sweep", "_centers"),
    (TRUSTED, "dapple_dp.pipelines.trusted_zone.sweep", "_numbered _write_part _write_scored_part"),
)
"""(rule, module, names of classes and functions in it)."""

AUDITED: dict[str, Rule] = {f"{module}:{name}": rule for rule, module, names in LISTED for name in names.split()}
