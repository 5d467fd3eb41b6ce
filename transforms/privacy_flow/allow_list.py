"""Audited code: every class and function that may stand in the graph of a job, with its rule.

To add one: read what it does with each input, name it here as "module:Name" under the rule that fits, and write a test
that leaves it out of its place. A transform that is listed is audited as a whole, its inside included; one that is not
listed is looked into, and everything inside must be listed. See `transforms.privacy_flow.audited_code` for what counts
as the same.
"""

from transforms.privacy_flow.rules import Level, Role, Rule

SOURCE = Rule(takes=Level.PUBLIC, gives=Level.PRIVATE)
"""Reads private input."""
PUBLIC = Rule(takes=Level.PUBLIC)
"""Server steps, public sinks, and reports that are private on their own: never given anything private."""
PASS = Rule(takes=Level.PRIVATE)
"""Gives what is as private as its inputs."""
CARRY = Rule(takes=Level.PRIVATE, role=Role.CARRY)
"""Gives the statistics, or sums of statistics, that it is given."""
SUM = Rule(takes=Level.PRIVATE, role=Role.SUM)
"""Adds up the statistics it is given."""
COPY = Rule(takes=Level.PRIVATE, role=Role.COPY)
"""May give an element several times: in several windows, or at several times of one."""
COLLECT = Rule(takes=Level.PRIVATE, sides=Level.MASKED)
"""Puts everything into one element; Beam itself broadcasts that where there is nothing."""
STATISTIC = Rule(takes=Level.PRIVATE, gives=Level.PRIVATE, role=Role.STATISTIC)
"""Statistics of shards, whose sensitivity is stated in `transforms.privacy_flow.stated_sensitivity`."""
NOISE = Rule(takes=Level.PRIVATE, gives=Level.PUBLIC, role=Role.NOISE)
"""The noise stage."""
SHARE = Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.PRIVATE, role=Role.SHARE)
"""The stage of the noise stage's module that adds one sender's share: what it gives is as private as before."""
DECLARED = Rule(takes=Level.PRIVATE, gives=Level.PUBLIC, role=Role.DECLARED)
"""A `DeclaredMechanism`."""
TRUSTED = Rule(takes=Level.PRIVATE, gives=Level.PRIVATE, role=Role.TRUSTED)
"""Whatever belongs to the trusted zone: it must not be part of a job whose outputs are public."""

_MASKED_MESSAGES = Rule(takes=Level.PUBLIC, gives=Level.MASKED, role=Role.MESSAGES)
_MASK = Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED, role=Role.MASK)
_MASKED_STEP = Rule(takes=Level.MASKED, sides=Level.MASKED)
_MASKED_CARRY = Rule(takes=Level.MASKED, role=Role.CARRY)
_MASKED_SUM = Rule(takes=Level.MASKED, role=Role.SUM)
_MASKED_NOISE = Rule(takes=Level.MASKED, gives=Level.MASKED_RELEASE, role=Role.NOISE)
_JOIN = Rule(takes=Level.MASKED, sides=Level.MASKED, gives=Level.MASKED_RELEASE, role=Role.JOIN)
_LISTS = Rule(takes=Level.PUBLIC, gives=Level.MASKED)
_UNMASK = Rule(takes=Level.MASKED_RELEASE, sides=Level.MASKED, gives=Level.PUBLIC)

AUDITED: dict[str, Rule] = {
    # Beam's own
    "apache_beam.transforms.core:Create": PUBLIC,
    "apache_beam.transforms.core:Impulse": PUBLIC,
    "apache_beam.transforms.core:Flatten": CARRY,
    "apache_beam.transforms.core:GroupByKey": PASS,
    "apache_beam.transforms.core:WindowInto": COPY,
    "apache_beam.transforms.util:CoGroupByKey": PASS,
    "apache_beam.transforms.util:Reshuffle": CARRY,
    "apache_beam.transforms.combiners:ToListCombineFn": COLLECT,
    # Reading
    "transforms.tables.read:ListShards": SOURCE,
    "transforms.tables.read:CheckRows": PASS,
    "transforms.tables.listing:DigestFiles": SOURCE,
    # Rounds
    "transforms.rounds.aggregation:_StatisticFn": STATISTIC,
    "transforms.trusted_zone.sweep_cells:_CellStatisticsFn": STATISTIC,
    "transforms.rounds.exact_sums:SumVectorsFn": SUM,
    "transforms.rounds.exact_sums:_BranchFn": CARRY,
    "transforms.rounds.exact_sums:_SumBranchFn": CARRY,
    "transforms.rounds.exact_sums:GatherFn": CARRY,
    "transforms.rounds.exact_sums:_GatherBranchesFn": CARRY,
    "transforms.rounds.exact_sums:TotalFn": CARRY,
    "transforms.rounds.exact_sums:SumPresentVectorsFn": SUM,
    "transforms.privacy.noise_stage:_AddNoiseFn": NOISE,
    "transforms.privacy.noise_stage:_AddKeyedNoiseFn": NOISE,
    "transforms.privacy.noise_stage:_AddMaskedNoiseFn": _MASKED_NOISE,
    "transforms.privacy.noise_stage:_AddFurtherNoiseFn": PUBLIC,
    "transforms.privacy.noise_stage:_AddSharesFn": SHARE,
    "transforms.privacy.noise_stage:_joined": _JOIN,
    "transforms.rounds.round:ServerFn": PUBLIC,
    "transforms.rounds.staged_state:begin": PUBLIC,
    "transforms.trusted_zone.sweep_cells:_unpacked": PUBLIC,
    "transforms.trusted_zone.sweep_cells:_broadcast": PUBLIC,
    "transforms.trusted_zone.sweep_cells:_advance": PUBLIC,
    "transforms.trusted_zone.sweep_cells:_model": PUBLIC,
    # Server steps
    "transforms.kmeans.feddp_kmeans.server:norm_step": PUBLIC,
    "transforms.kmeans.feddp_kmeans.server:diameter_step": PUBLIC,
    "transforms.kmeans.feddp_kmeans.server:outer_product_step": PUBLIC,
    "transforms.kmeans.feddp_kmeans.server:simplify_step": PUBLIC,
    "transforms.kmeans.feddp_kmeans.server:weights_step": PUBLIC,
    "transforms.kmeans.lloyd.server:means_step": PUBLIC,
    "transforms.kmeans.lloyd.quality:step": PUBLIC,
    "transforms.kmeans.lloyd_starts:_leave_feddp": PUBLIC,
    "transforms.kmeans.lloyd_starts:_leave_tree": PUBLIC,
    "transforms.kmeans.median_starts:_leave": PUBLIC,
    "transforms.kmeans.dp_medians.server:median_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.starts:rows_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.starts:mean_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.starts:scatter_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.starts:grid_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.candidates:scatter_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.candidates:candidates_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.rivals:server_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.candidates:spread_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.candidates:fine_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.server:relative_step": PUBLIC,
    "transforms.kmeans.dp_lloyd.server:absolute_step": PUBLIC,
    "transforms.kmeans.spherical.server:sums_step": PUBLIC,
    "transforms.kmeans.spherical.server:names_step": PUBLIC,
    "transforms.kmeans.windows.rounds:state_at": PUBLIC,
    "transforms.kmeans.windows.server:window_step": PUBLIC,
    "transforms.kmeans.central_tree.server:shape_step": PUBLIC,
    "transforms.kmeans.central_tree.server:split_step": PUBLIC,
    "transforms.kmeans.central_tree.server:leaves_step": PUBLIC,
    # Masked rounds: a message is uniform without its mask, and only noised sums are unmasked
    "transforms.masked.clients:_SenderStatisticsFn": STATISTIC,
    "transforms.masked.clients:_MaskFn": _MASK,
    "transforms.masked.aggregation:all_arrive": _MASKED_CARRY,
    "transforms.masked.aggregator:SumMessagesFn": _MASKED_SUM,
    "transforms.masked.aggregator:_checked": _MASKED_CARRY,
    "transforms.masked.clients:_UnmaskFn": _UNMASK,
    "transforms.masked.pairwise_rounds:_AdvertiseFn": Rule(takes=Level.PRIVATE, gives=Level.MASKED),
    "transforms.masked.pairwise_lists:list_everybody": _MASKED_STEP,
    "transforms.masked.pairwise_lists:number_listed": _MASKED_STEP,
    "transforms.masked.pairwise_rounds:_MaskFn": _MASK,
    "transforms.masked.pairwise_rounds:_ShareFn": Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED),
    "transforms.masked.pairwise_rounds:_RevealFn": _MASKED_STEP,
    "transforms.masked.pairwise_lists:read_lists": _LISTS,
    "transforms.masked.pairwise_legs:_KeysFn": Rule(takes=Level.PRIVATE, gives=Level.MASKED),
    "transforms.masked.pairwise_legs:_LettersFn": Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED),
    "transforms.masked.pairwise_legs:_MessagesFn": _MASK,
    "transforms.masked.pairwise_legs:_SharesFn": Rule(takes=Level.PUBLIC, sides=Level.MASKED, gives=Level.MASKED),
    "transforms.masked.pairwise_legs:_unmask": _UNMASK,
    "transforms.masked.pairwise_legs:_PinnedFn": STATISTIC,
    "transforms.masked.pairwise_legs:pin": TRUSTED,
    "pipelines.masked.pairwise_upload:_send": _MASKED_STEP,
    "pipelines.masked.pairwise_upload:_hand_out": _MASKED_STEP,
    "pipelines.masked.unmask:_handed": _LISTS,
    "pipelines.masked.upload:_send": Rule(takes=Level.MASKED),
    "pipelines.masked.aggregate:_read": _MASKED_MESSAGES,
    "pipelines.masked.aggregate:_close": Rule(takes=Level.MASKED_RELEASE),
    "pipelines.masked.unmask:_keep": PUBLIC,
    # Public sinks
    "transforms.files.publish:_WriteModelFn": PUBLIC,
    "pipelines.kmeans.fit_rounds:_to_arrays": PUBLIC,
    "transforms.profile.publish:PublishProfile": PUBLIC,
    # Profiles, with the noise of PipelineDP
    "transforms.profile.measure_clusters:MeasureClusters": STATISTIC,
    "transforms.profile.pipeline_dp_noise:AddPipelineDPNoise": DECLARED,
    # Reports, private on their own
    "transforms.reports.encode:EncodeReports": DECLARED,
    "transforms.reports.shuffle:ShuffleReports": PUBLIC,
    "transforms.reports.batches:ReadArrivals": PUBLIC,
    "transforms.reports.batches:ReadReports": PUBLIC,
    "transforms.reports.decode:DecodeReports": PUBLIC,
    "transforms.reports.split_messages:EncodeMessages": DECLARED,
    "transforms.reports.split_messages:ShuffleMessages": PUBLIC,
    "transforms.reports.split_messages:ReadMessages": PUBLIC,
    "transforms.reports.split_messages:ReadUploads": PUBLIC,
    "transforms.reports.split_messages:DecodeMessages": PUBLIC,
    "pipelines.reports.decode:_write": PUBLIC,
    # Clustered federated learning: DP-SGD per client, then post-processing
    "transforms.clustered_fl.labeled_clients:ListClients": SOURCE,
    "transforms.clustered_fl.rounds:TrainPrivately": DECLARED,
    "transforms.clustered_fl.rounds:SumUpdatesFn": PUBLIC,
    "transforms.clustered_fl.rounds:_server_step": PUBLIC,
    "transforms.clustered_fl.rounds:_to_arrays": PUBLIC,
    "transforms.files.checkpoint:_write_arrays": PUBLIC,
    # Messages of a topic, copied to the trusted zone
    "transforms.arrivals.consume:CopyMessages": TRUSTED,
    # The trusted zone
    "transforms.clustered_fl.labeled_clients:InspectClients": TRUSTED,
    "transforms.clustered_fl.judge_models:JudgeModels": TRUSTED,
    "transforms.files.private_sink:PrivateSink": TRUSTED,
    "transforms.tables.split_clients:FindSplitClients": TRUSTED,
    "transforms.tables.split_clients:CallRoll": TRUSTED,
    "transforms.tables.group_clients:GroupClients": TRUSTED,
    "transforms.tables.group_clients:WriteManifest": TRUSTED,
    "transforms.trusted_zone.assign_rows:AssignRows": TRUSTED,
    "transforms.trusted_zone.evaluate_models:EvaluateModels": TRUSTED,
    "transforms.trusted_zone.evaluate_models:ScoreModels": TRUSTED,
    "transforms.trusted_zone.evaluate_models:WriteMetrics": TRUSTED,
    "transforms.trusted_zone.pooled_kmeans:ClusterByClient": TRUSTED,
    "transforms.trusted_zone.plain_lloyd:RunPlainLloyd": TRUSTED,
    "transforms.trusted_zone.pooled_kmeans:ClusterPooledRows": TRUSTED,
    "pipelines.kmeans.plan.file_digests:_write_block": TRUSTED,
    "pipelines.tables.client_staging:_write_answer": TRUSTED,
    "pipelines.trusted_zone.pooled_fit:_write_centers": TRUSTED,
    "pipelines.trusted_zone.sweep:_centers": PUBLIC,
    "pipelines.trusted_zone.sweep:_numbered": TRUSTED,
    "pipelines.trusted_zone.sweep:_write_part": TRUSTED,
    "pipelines.trusted_zone.sweep:_write_scored_part": TRUSTED,
}
