"""Audited code: every class and function that may stand in the graph of a job, with its rule.

To add one: read what it does with each input, name it here as "module:Name" under the rule that fits, and write a test
that leaves it out of its place. A transform that is listed is audited as a whole, its inside included; one that is not
listed is looked into, and everything inside must be listed. See `transforms.audited_code` for what counts as the same.
"""

import dataclasses

from transforms.flow_rules import Level, Role, Rule

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
"""Statistics of shards, whose sensitivity is stated in `transforms.stated_sensitivity`."""
NOISE = Rule(takes=Level.PRIVATE, gives=Level.PUBLIC, role=Role.NOISE)
"""The noise stage."""
DECLARED = Rule(takes=Level.PRIVATE, gives=Level.PUBLIC, role=Role.DECLARED)
"""A `DeclaredMechanism`."""
TRUSTED = Rule(takes=Level.PRIVATE, gives=Level.PRIVATE, role=Role.TRUSTED)
"""Whatever belongs to the trusted zone: it must not be part of a job whose outputs are public."""

_MASKED_STATISTIC = Rule(takes=Level.PRIVATE, gives=Level.MASKED, role=Role.STATISTIC)
_MASKED_MESSAGES = Rule(takes=Level.PUBLIC, gives=Level.MASKED, role=Role.MESSAGES)
_MASK = Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED, role=Role.CARRY)
_MASKED_STEP = Rule(takes=Level.MASKED, sides=Level.MASKED)
_MASKED_CARRY = Rule(takes=Level.MASKED, role=Role.CARRY)
_MASKED_SUM = Rule(takes=Level.MASKED, role=Role.SUM)
_MASKED_NOISE = Rule(takes=Level.MASKED, gives=Level.MASKED_RELEASE, role=Role.NOISE)
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
    "transforms.read:ListShards": SOURCE,
    "transforms.read:CheckRows": PASS,
    # Rounds
    "transforms.rounds:_StatisticFn": STATISTIC,
    "transforms.cells:_CellStatisticsFn": STATISTIC,
    "transforms.aggregation:SumVectorsFn": SUM,
    "transforms.aggregation:SumPresentVectorsFn": SUM,
    "transforms.noise:_AddNoiseFn": NOISE,
    "transforms.noise:_AddKeyedNoiseFn": NOISE,
    "transforms.noise:_AddMaskedNoiseFn": _MASKED_NOISE,
    "transforms.noise:_AddFurtherNoiseFn": PUBLIC,
    "transforms.rounds:server_step": PUBLIC,
    "transforms.cells:_unpacked": PUBLIC,
    "transforms.cells:_broadcast": PUBLIC,
    "transforms.cells:_advance": PUBLIC,
    "transforms.cells:_model": PUBLIC,
    # Server steps
    "transforms.feddp_server:norm_step": PUBLIC,
    "transforms.feddp_server:diameter_step": PUBLIC,
    "transforms.feddp_server:outer_product_step": PUBLIC,
    "transforms.feddp_server:simplify_step": PUBLIC,
    "transforms.feddp_server:weights_step": PUBLIC,
    "transforms.feddp_server:means_step": PUBLIC,
    "transforms.quality:step": PUBLIC,
    "transforms.dp_lloyd:_switch_step": PUBLIC,
    "transforms.dp_lloyd:_leave_tree_step": PUBLIC,
    "transforms.dp_lloyd_starts:rows_step": PUBLIC,
    "transforms.dp_lloyd_starts:mean_step": PUBLIC,
    "transforms.dp_lloyd_starts:scatter_step": PUBLIC,
    "transforms.dp_lloyd_starts:grid_step": PUBLIC,
    "transforms.dp_lloyd_server:relative_step": PUBLIC,
    "transforms.dp_lloyd_server:absolute_step": PUBLIC,
    "transforms.tree_server:shape_step": PUBLIC,
    "transforms.tree_server:split_step": PUBLIC,
    "transforms.tree_server:leaves_step": PUBLIC,
    # Masked rounds: a message is uniform without its mask, and only noised sums are unmasked
    "transforms.client_messages:_UploadFn": _MASKED_STATISTIC,
    "transforms.masked_rounds:all_arrive": _MASKED_CARRY,
    "transforms.masked_sum:SumMessagesFn": _MASKED_SUM,
    "transforms.masked_sum:_checked": _MASKED_CARRY,
    "transforms.client_messages:_UnmaskFn": _UNMASK,
    "transforms.pairwise_rounds:_statistics": STATISTIC,
    "transforms.pairwise_rounds:_AdvertiseFn": Rule(takes=Level.PRIVATE, gives=Level.MASKED),
    "transforms.pairwise_rounds:make_roster": _MASKED_STEP,
    "transforms.pairwise_rounds:_MaskFn": _MASK,
    "transforms.pairwise_rounds:_ShareFn": Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED),
    "transforms.pairwise_rounds:_RevealFn": _MASKED_STEP,
    "transforms.pairwise_rounds:_unmask": _UNMASK,
    "transforms.pairwise_legs:read_lists": _LISTS,
    "transforms.pairwise_legs:_KeysFn": Rule(takes=Level.PRIVATE, gives=Level.MASKED),
    "transforms.pairwise_legs:_LettersFn": Rule(takes=Level.PRIVATE, sides=Level.MASKED, gives=Level.MASKED),
    "transforms.pairwise_legs:_MessagesFn": dataclasses.replace(_MASKED_STATISTIC, sides=Level.MASKED),
    "transforms.pairwise_legs:_SharesFn": Rule(takes=Level.PUBLIC, sides=Level.MASKED, gives=Level.MASKED),
    "transforms.pairwise_legs:_unmask": _UNMASK,
    "pipelines.pairwise_upload:_send": _MASKED_STEP,
    "pipelines.pairwise_upload:_send_rows": _MASKED_STEP,
    "pipelines.pairwise_upload:_hand_out": _MASKED_STEP,
    "pipelines.unmask:_handed": _LISTS,
    "pipelines.upload:_send": Rule(takes=Level.MASKED),
    "pipelines.aggregate:_read": _MASKED_MESSAGES,
    "pipelines.aggregate:_close": Rule(takes=Level.MASKED_RELEASE),
    "pipelines.unmask:_keep": PUBLIC,
    # Public sinks
    "transforms.publish:_model": PUBLIC,
    "transforms.publish:_write_model": PUBLIC,
    "transforms.publish_profile:PublishProfile": PUBLIC,
    # Profiles, with the noise of PipelineDP
    "transforms.measure_clusters:MeasureClusters": STATISTIC,
    "transforms.pipeline_dp_noise:AddPipelineDPNoise": DECLARED,
    # Reports, private on their own
    "transforms.encode_reports:EncodeReports": DECLARED,
    "transforms.shuffle_reports:ShuffleReports": PUBLIC,
    "transforms.report_batches:ReadReports": PUBLIC,
    "transforms.decode_reports:DecodeReports": PUBLIC,
    "transforms.split_messages:EncodeMessages": DECLARED,
    "transforms.split_messages:ShuffleMessages": PUBLIC,
    "transforms.split_messages:ReadMessages": PUBLIC,
    "transforms.split_messages:DecodeMessages": PUBLIC,
    "pipelines.decode:_write": PUBLIC,
    # Clustered federated learning: DP-SGD per client, then post-processing
    "transforms.labeled_clients:ListClients": SOURCE,
    "transforms.clustered_fl:TrainPrivately": DECLARED,
    "transforms.clustered_fl:SumUpdatesFn": PUBLIC,
    "transforms.clustered_fl:_server_step": PUBLIC,
    "transforms.clustered_fl:_to_arrays": PUBLIC,
    "transforms.checkpoint:_write_arrays": PUBLIC,
    # The trusted zone
    "transforms.labeled_clients:InspectClients": TRUSTED,
    "transforms.judge_models:JudgeModels": TRUSTED,
    "transforms.private_sink:PrivateSink": TRUSTED,
    "transforms.inspect_clients:FindSplitClients": TRUSTED,
    "transforms.group_clients:GroupClients": TRUSTED,
    "transforms.group_clients:WriteManifest": TRUSTED,
    "transforms.assign_rows:AssignRows": TRUSTED,
    "transforms.evaluate_models:EvaluateModels": TRUSTED,
    "transforms.evaluate_models:ScoreModel": TRUSTED,
    "transforms.evaluate_models:WriteMetrics": TRUSTED,
    "transforms.pooled_kmeans:ClusterByClient": TRUSTED,
    "transforms.plain_lloyd:RunPlainLloyd": TRUSTED,
    "transforms.pooled_kmeans:ClusterPooledRows": TRUSTED,
    "pipelines.client_staging:_write_answer": TRUSTED,
    "pipelines.pooled_fit:_write_centers": TRUSTED,
    "pipelines.sweep:_centers": PUBLIC,
    "pipelines.sweep:_numbered": TRUSTED,
    "pipelines.sweep:_write_part": TRUSTED,
}
