"""Audited types: every type of which a step may be handed an object, or of which a graph may create one.

To add one: read what its methods compute, name it here as "module:Name" under the reason that fits, and add a lookalike
of it to the attacks of `tests/attacks/test_graph_objects.py`. A type is known by identity, so a subclass is another
one. Its objects hold the fields that it declares and nothing else. What they hold must be of audited types again.
"""

_BEAM = frozenset(
    {
        # Stand in a step for what the runner puts there, or say how a collection is broadcast.
        "apache_beam.internal.util:ArgumentPlaceholder",
        "apache_beam.pvalue:AsDict",
        "apache_beam.pvalue:AsIter",
        "apache_beam.pvalue:AsList",
        "apache_beam.pvalue:AsSingleton",
        # A handle of what worker processes keep: a key, no content.
        "apache_beam.utils.shared:Shared",
        # Bytes and elements, in both directions: Beam's own coders of plain values.
        "apache_beam.coders.coders:BooleanCoder",
        "apache_beam.coders.coders:BytesCoder",
        "apache_beam.coders.coders:FastPrimitivesCoder",
        "apache_beam.coders.coders:FloatCoder",
        "apache_beam.coders.coders:IterableCoder",
        "apache_beam.coders.coders:ListCoder",
        "apache_beam.coders.coders:MapCoder",
        "apache_beam.coders.coders:NullableCoder",
        "apache_beam.coders.coders:PaneInfoCoder",
        "apache_beam.coders.coders:PickleCoder",
        "apache_beam.coders.coders:StrUtf8Coder",
        "apache_beam.coders.coders:TupleCoder",
        "apache_beam.coders.coders:VarIntCoder",
        # Windows and triggers, whose copies of elements `Role.COPY` counts.
        "apache_beam.transforms.core:Windowing",
        "apache_beam.transforms.core:WindowInto.WindowIntoFn",
        "apache_beam.transforms.trigger:AfterCount",
        "apache_beam.transforms.trigger:DefaultTrigger",
        "apache_beam.transforms.trigger:Repeatedly",
        "apache_beam.transforms.window:FixedWindows",
        "apache_beam.transforms.window:GlobalWindows",
        "apache_beam.transforms.window:SlidingWindows",
    }
)

WHOLE: frozenset[str] = frozenset(
    {
        # What the graph itself is made of; its steps are checked one by one.
        "apache_beam.pvalue:PCollection",
        # Types of elements, which nothing enforces when a job runs.
        "apache_beam.runners.common:DoFnSignature",
        "apache_beam.typehints.decorators:IOTypeHints",
        "apache_beam.utils.timestamp:Duration",
        # Inside of Beam's coders, made by these.
        "apache_beam.coders.coder_impl:BooleanCoderImpl",
        "apache_beam.coders.coder_impl:BytesCoderImpl",
        "apache_beam.coders.coder_impl:CallbackCoderImpl",
        "apache_beam.coders.coder_impl:FastPrimitivesCoderImpl",
        "apache_beam.coders.coder_impl:FloatCoderImpl",
        "apache_beam.coders.coder_impl:IterableCoderImpl",
        "apache_beam.coders.coder_impl:ListCoderImpl",
        "apache_beam.coders.coder_impl:MapCoderImpl",
        "apache_beam.coders.coder_impl:NullableCoderImpl",
        "apache_beam.coders.coder_impl:TupleCoderImpl",
        "apache_beam.coders.coder_impl:VarIntCoderImpl",
    }
)
"""Audited types whose objects are not looked into."""

STATES: frozenset[str] = frozenset(
    {
        "transforms.kmeans.central_tree.state:TreeState",
        "transforms.kmeans.dp_lloyd.candidates:CandidateState",
        "transforms.kmeans.dp_lloyd.state:LloydState",
        "transforms.kmeans.dp_medians.state:MedianState",
        "transforms.kmeans.feddp_kmeans.state:FedDPState",
        "transforms.kmeans.lloyd.state:MeansState",
        "transforms.kmeans.spherical.state:SphericalState",
        "transforms.kmeans.windows.state:WindowState",
    }
)
"""States of protocols that run in rounds (`transforms.rounds.protocol.ProtocolState`)."""

_CHOICES = frozenset(
    {
        # Enumerations: of each only its own members.
        "schemas.choices:Auto",
        "schemas.choices:CenterUpdate",
        "schemas.choices:FederatedAlgorithm",
        "schemas.choices:InvalidRows",
        "schemas.choices:LloydStart",
        "schemas.choices:LloydVariant",
        "schemas.choices:ModelKind",
        "schemas.choices:ModelStart",
        "schemas.choices:NoiseBy",
        "schemas.choices:PostProcess",
        "schemas.choices:RadiusRule",
        "schemas.choices:ReportMode",
        "schemas.choices:TableFormat",
        "schemas.choices:SelectionScore",
        "schemas.choices:UpdateView",
        "schemas.choices:WhenScarce",
        "schemas.masked.pairwise_messages:Leg",
        "schemas.privacy.flow:Zone",
        "schemas.privacy.plan:Geometry",
        "schemas.privacy.plan:Mechanism",
        "schemas.privacy.plan:Quantity",
        "schemas.privacy.plan:Replaced",
        "schemas.privacy.plan:Role",
        "schemas.privacy.plan:PrivacyUnit",
        "schemas.profile.plan:ProfileLaw",
    }
)

_ROWS = frozenset(
    {
        # Where rows are and how they become arrays: their methods run on private rows, and bound these.
        "schemas.arrivals.offsets:RecordPlace",
        "schemas.arrivals.topic:MessageColumns",
        "schemas.arrivals.topic:PackedColumns",
        "schemas.clustered_fl.labeled_contract:LabeledContract",
        "schemas.tables.contract:TableContract",
        "schemas.tables.participation:Participation",
        "schemas.tables.encoded_column:BinnedColumn",
        "schemas.tables.encoded_column:BoundedColumn",
        "schemas.tables.encoded_column:OneHotColumn",
        "schemas.tables.encoded_column:ScaledColumn",
        "schemas.tables.encoder:Encoder",
        "schemas.tables.feature_patterns:FeaturePatterns",
        "schemas.tables.shard:ShardRef",
        "schemas.tables.snapshot:Snapshot",
        "schemas.tables.terms_column:TermsColumn",
        "schemas.tables.terms_column:TermsVector",
        "transforms.arrivals.consume:TopicClient",
        "transforms.clustered_fl.labeled_clients:ClientGroup",
        "transforms.numerics.tables.participation:Rule",
        "transforms.tables.group_clients:SamplingParams",
        "transforms.tables.group_clients:Windows",
        "transforms.tables.split_clients:RollParams",
        "transforms.masked.party_state:RunState",
        "transforms.masked.sealing:Sealing",
        "transforms.masked.signing:Parties",
        "transforms.tables.listing:Listing",
        "transforms.tables.source:Source",
        # Frames, centers and cells: what a statistic maps bounded rows to.
        "transforms.kmeans.dp_lloyd.served:ServerStart",
        "transforms.numerics.kmeans.centers:Prior",
        "transforms.numerics.kmeans.starts.grid:Grid",
        "transforms.numerics.kmeans.tree:Hyperplanes",
        "transforms.numerics.kmeans.tree:Tree",
        "transforms.numerics.statistics.assignment:Assigner",
        "transforms.numerics.statistics.assignment:Projection",
        "transforms.numerics.statistics.frame:Box",
        "transforms.numerics.statistics.frame:Components",
        "transforms.numerics.statistics.frame:Frame",
        "transforms.numerics.statistics.lattice:Lattice",
        "transforms.numerics.statistics.nearest:NearestCenters",
    }
)

_PRIVACY = frozenset(
    {
        # Plans, promises and releases: what is noised, by how much, and who accounts for it.
        "schemas.privacy.flow:Promise",
        "schemas.privacy.flow:PromisedPlan",
        "schemas.privacy.release:MaskedReleases",
        "schemas.privacy.release:MaskedSum",
        "schemas.privacy.noise_shares:ShareLaw",
        "schemas.privacy.plan:Meaning",
        "schemas.privacy.plan:ReleasePlan",
        "schemas.privacy.plan:ReleaseSpec",
        "schemas.privacy.plan:RoundPlan",
        "schemas.privacy.release:Release",
        "schemas.privacy.unit:Clients",
        "schemas.privacy.unit:Rows",
        "schemas.profile.plan:ProfileEvent",
        "schemas.profile.plan:ProfilePlan",
        "schemas.reports.parameters:ReportGuarantee",
        "schemas.reports.parameters:ReportParameters",
        "schemas.reports.parameters:ReportVariant",
        "schemas.reports.parameters:SubsetChoice",
        "schemas.reports.split_parameters:SplitParameters",
        "transforms.rounds.protocol:Round",
        # What a worker may use; no matter for results.
        "transforms.rounds.row_cache:WorkerLimits",
        # Where public points are, and their digest.
        "transforms.rounds.staged_state:StagedArrays",
        # Terms of federated training, by which clients draw their noise.
        "schemas.clustered_fl.records:ClusteringParams",
        "schemas.clustered_fl.records:FederatedState",
        "schemas.clustered_fl.records:Federation",
        "schemas.clustered_fl.records:ModelShape",
        "schemas.clustered_fl.records:Silo",
        "schemas.clustered_fl.records:TrainingParams",
        "transforms.clustered_fl.rounds:TrainingSetup",
        # Who masks, and how.
        "schemas.masked.config:PairwiseParams",
        "transforms.masked.clients:Masking",
    }
)

_SETTINGS = frozenset(
    {
        # Public settings of a job that its steps read.
        "schemas.kmeans.sections.clipping_config:ClientBoundsConfig",
        "schemas.kmeans.sections.feddp_config:DiameterConfig",
        "schemas.kmeans.sections.feddp_config:SimplifyConfig",
        "schemas.kmeans.lloyd_config:DPLloydConfig",
        "schemas.kmeans.model:NoisyCost",
        "schemas.kmeans.pooled_config:OptimalOptions",
        "schemas.profile.config:CategoricalColumn",
        "schemas.profile.config:NumericColumn",
        "schemas.reports.parameters:Branching",
        "transforms.clustered_fl.judge_models:ClientModels",
        "transforms.kmeans.central_tree.state:TreeSettings",
        "transforms.kmeans.dp_medians.state:MedianSettings",
        "transforms.kmeans.lloyd.box:LloydSettings",
        "transforms.kmeans.lloyd.state:ClippingBounds",
        "transforms.kmeans.lloyd.state:MeansSettings",
        "transforms.kmeans.spherical.state:SphericalSettings",
        "transforms.numerics.statistics.term_cells:CellLimits",
        "transforms.profile.rows:ProfileParams",
        "transforms.reports.decode:DecodeParams",
        "transforms.trusted_zone.assign_rows:AssignParams",
        "transforms.trusted_zone.evaluate_models:ScoreParams",
        "transforms.trusted_zone.sweep_cells:Starts",
    }
)

AUDITED_TYPES: frozenset[str] = _BEAM | WHOLE | STATES | _CHOICES | _ROWS | _PRIVACY | _SETTINGS

_SIDE = frozenset({"pvalue", "_window_mapping_fn"})
ATTRIBUTES: dict[str, frozenset[str]] = {
    "apache_beam.pvalue:AsDict": _SIDE,
    "apache_beam.pvalue:AsIter": _SIDE,
    "apache_beam.pvalue:AsList": _SIDE,
    "apache_beam.pvalue:AsSingleton": _SIDE | {"default_value"},
    "apache_beam.utils.shared:Shared": frozenset({"_key"}),
    "apache_beam.transforms.core:Windowing": frozenset(
        {"windowfn", "triggerfn", "accumulation_mode", "allowed_lateness", "environment_id", "timestamp_combiner"}
        | {"_is_default"}
    ),
    "apache_beam.transforms.core:WindowInto.WindowIntoFn": frozenset(
        {"windowing", "_type_hints", "input_batch_converter", "output_batch_converter"}
    ),
    "apache_beam.transforms.trigger:AfterCount": frozenset({"count"}),
    "apache_beam.transforms.trigger:Repeatedly": frozenset({"underlying"}),
    "apache_beam.transforms.window:FixedWindows": frozenset({"size", "offset"}),
    "apache_beam.transforms.window:SlidingWindows": frozenset({"size", "period", "offset"}),
} | {
    name: frozenset({"_impl", "_coders", "_elem_coder", "_fallback_coder", "_key_coder", "_value_coder"})
    for name in _BEAM
    if name.startswith("apache_beam.coders.")
}
"""Attributes of objects of Beam, which declares none; all other audited types declare their fields."""

BEAM_FUNCTIONS: frozenset[str] = frozenset({"apache_beam.transforms.sideinputs:_global_window_mapping_fn"})
"""Functions of Beam that are part of its own objects."""
