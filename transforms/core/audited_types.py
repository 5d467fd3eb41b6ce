"""Audited types: every type whose objects a graph may create or pass to a step.

To add one, read what its methods compute, list it here under the reason that fits, and add a lookalike of it to
`tests/attacks/test_graph_objects.py`. A type is known by identity, so a subclass is a different type. Its objects may
hold the fields that it declares and nothing else, and these must again be of audited types.
"""


def _types(*listed: tuple[str, str]) -> frozenset[str]:
    """Expands (module, names of types in it) to "module:Name"."""
    return frozenset(f"{module}:{name}" for module, names in listed for name in names.split())


_BEAM = _types(
    # Placeholders for what the runner passes to a step, and ways to broadcast a collection.
    ("apache_beam.internal.util", "ArgumentPlaceholder"),
    ("apache_beam.pvalue", "AsDict AsIter AsList AsSingleton"),
    # A handle of a cache in worker processes: a name, no content.
    ("apache_beam.utils.shared", "Shared"),
    # Beam's coders of plain values.
    ("apache_beam.coders.coders", "BooleanCoder BytesCoder FastPrimitivesCoder FloatCoder IterableCoder ListCoder"),
    ("apache_beam.coders.coders", "MapCoder NullableCoder PaneInfoCoder PickleCoder StrUtf8Coder TupleCoder"),
    ("apache_beam.coders.coders", "VarIntCoder"),
    # Windows and triggers, whose copies of elements `Role.COPY` counts.
    ("apache_beam.transforms.core", "Windowing WindowInto.WindowIntoFn"),
    ("apache_beam.transforms.trigger", "AfterCount DefaultTrigger Repeatedly"),
    ("apache_beam.transforms.window", "FixedWindows GlobalWindows SlidingWindows"),
)

WHOLE = _types(
    # Parts of the graph, whose steps are checked one by one.
    ("apache_beam.pvalue", "PCollection"),
    # Types of elements; nothing enforces them when a job runs.
    ("apache_beam.runners.common", "DoFnSignature"),
    ("apache_beam.typehints.decorators", "IOTypeHints"),
    ("apache_beam.utils.timestamp", "Duration"),
    # Parts of Beam's coders.
    ("apache_beam.coders.coder_impl", "BooleanCoderImpl BytesCoderImpl CallbackCoderImpl FastPrimitivesCoderImpl"),
    ("apache_beam.coders.coder_impl", "FloatCoderImpl IterableCoderImpl ListCoderImpl MapCoderImpl"),
    ("apache_beam.coders.coder_impl", "NullableCoderImpl TupleCoderImpl VarIntCoderImpl"),
)
"""Audited types whose objects are not searched."""

STATES = _types(
    ("dapple_dp.transforms.kmeans.central_tree.state", "TreeState"),
    ("dapple_dp.transforms.kmeans.dp_lloyd.candidates", "CandidateState"),
    ("dapple_dp.transforms.kmeans.dp_lloyd.state", "LloydState"),
    ("dapple_dp.transforms.kmeans.dp_medians.state", "MedianState"),
    ("dapple_dp.transforms.kmeans.feddp_kmeans.state", "FedDPState"),
    ("dapple_dp.transforms.kmeans.k_prototypes.state", "PrototypeState"),
    ("dapple_dp.transforms.kmeans.lloyd.state", "MeansState"),
    ("dapple_dp.transforms.kmeans.spherical.state", "SphericalState"),
    ("dapple_dp.transforms.kmeans.windows.state", "WindowState"),
)
"""States of protocols that run in rounds: `ProtocolState` of `transforms/rounds/protocol.py`."""

CONTRACTS = _types(
    ("dapple_dp.schemas.tables.contract", "TableContract"),
    ("dapple_dp.transforms.rounds.shard_sums", "ShardSums"),
    ("dapple_dp.beam.rows", "BlockSums"),
)
"""Ways to read rows: `by_client` or not, which `client_id`, and the `participation` in windows of an epoch."""

SOURCES = _types(("dapple_dp.transforms.tables.source", "Source"))
"""The input of a job; its attribute `files` lists the files."""

ROW_REFERENCES = SOURCES | _types(("dapple_dp.schemas.tables.shard", "ShardRef"))
"""References to rows."""

SHARE_LAWS = _types(("dapple_dp.schemas.privacy.noise_shares", "ShareLaw"))
"""Rules by which senders split the noise."""

_VALUES = _types(
    # Enumerations; only their members are accepted.
    ("dapple_dp.schemas.choices", "Auto InvalidRows LloydStart"),
    ("dapple_dp.schemas.choices", "ModelKind NoiseBy ReportMode SelectionScore TableFormat WhenScarce"),
    ("dapple_dp.schemas.masked.pairwise_messages", "Leg"),
    ("dapple_dp.schemas.core.plan", "Zone Geometry Mechanism PrivacyUnit"),
    ("dapple_dp.schemas.privacy.meaning", "Quantity Replaced Role"),
    ("dapple_dp.schemas.profile.plan", "ProfileLaw"),
    # References to rows and ways to turn them into arrays: their methods run on private rows, and bound these.
    ("dapple_dp.beam.rows", "RowBlock"),
    ("dapple_dp.beam.windows", "PublicWindows"),
    ("dapple_dp.schemas.arrivals.offsets", "RecordPlace"),
    ("dapple_dp.schemas.arrivals.topic", "MessageColumns PackedColumns"),
    ("dapple_dp.schemas.clustered_fl.labeled_contract", "LabeledContract"),
    ("dapple_dp.schemas.tables.participation", "Participation"),
    ("dapple_dp.schemas.tables.encoded_column", "BinnedColumn BoundedColumn FilledColumn OneHotColumn ScaledColumn"),
    ("dapple_dp.schemas.tables.encoder", "Encoder"),
    ("dapple_dp.schemas.tables.feature_patterns", "FeaturePatterns"),
    ("dapple_dp.schemas.tables.snapshot", "Snapshot"),
    ("dapple_dp.schemas.tables.terms_column", "TermsColumn TermsVector"),
    ("dapple_dp.transforms.arrivals.consume", "TopicClient"),
    ("dapple_dp.transforms.clustered_fl.labeled_clients", "ClientGroup"),
    ("dapple_dp.transforms.numerics.tables.participation", "Rule"),
    ("dapple_dp.transforms.tables.group_clients", "SamplingParams Windows"),
    ("dapple_dp.transforms.tables.split_clients", "ClientListParams"),
    ("dapple_dp.transforms.masked.party_state", "RunState"),
    ("dapple_dp.transforms.masked.sealing", "Sealing"),
    ("dapple_dp.transforms.masked.signing", "Parties"),
    ("dapple_dp.transforms.tables.listing", "Listing"),
    # Frames, centers and cells that statistics use.
    ("dapple_dp.transforms.kmeans.dp_lloyd.served", "ServerStart"),
    ("dapple_dp.transforms.numerics.kmeans.centers", "Prior"),
    ("dapple_dp.transforms.numerics.kmeans.starts.grid", "Grid"),
    ("dapple_dp.transforms.numerics.kmeans.tree", "Hyperplanes Tree"),
    ("dapple_dp.transforms.core.statistics.assignment", "Assigner Projection"),
    ("dapple_dp.transforms.core.statistics.frame", "Box Frame"),
    ("dapple_dp.transforms.core.statistics.lattice", "Lattice"),
    ("dapple_dp.transforms.numerics.statistics.nearest", "NearestCenters"),
    # Plans, promises and releases.
    ("dapple_dp.schemas.core.plan", "Promise PromisedPlan ReleasePlan ReleaseSpec RoundPlan"),
    ("dapple_dp.schemas.masked.exchange", "MaskedReleases MaskedSum"),
    ("dapple_dp.schemas.core.release", "Release"),
    ("dapple_dp.schemas.core.unit", "Clients Rows"),
    ("dapple_dp.schemas.privacy.meaning", "Meaning"),
    ("dapple_dp.schemas.profile.plan", "ProfileEvent ProfilePlan"),
    ("dapple_dp.schemas.reports.parameters", "ReportGuarantee ReportParameters ReportVariant SubsetChoice"),
    ("dapple_dp.transforms.core.round", "Round"),
    # The only key source of noise and mask stages.
    ("dapple_dp.transforms.privacy.key_files", "KeyFile"),
    # Limits of a worker, which change no result.
    ("dapple_dp.transforms.rounds.row_cache", "WorkerLimits"),
    # A reference to public points, with their digest.
    ("dapple_dp.transforms.rounds.staged_state", "StagedArrays"),
    # Terms of federated training that set the noise of clients.
    ("dapple_dp.schemas.clustered_fl.records", "ClusteringParams FederatedState Federation ModelShape Silo"),
    ("dapple_dp.schemas.clustered_fl.records", "TrainingParams"),
    ("dapple_dp.transforms.clustered_fl.rounds", "TrainingSetup"),
    # Masking.
    ("dapple_dp.schemas.masked.config", "PairwiseParams"),
    ("dapple_dp.transforms.masked.clients", "Masking"),
    # Public settings that steps read.
    ("dapple_dp.schemas.kmeans.lloyd_config", "DPLloydConfig"),
    ("dapple_dp.schemas.kmeans.model", "NoisyCost"),
    ("dapple_dp.schemas.profile.config", "CategoricalColumn NumericColumn"),
    ("dapple_dp.transforms.clustered_fl.judge_models", "ClientModels"),
    ("dapple_dp.transforms.kmeans.central_tree.state", "TreeSettings"),
    ("dapple_dp.transforms.kmeans.dp_medians.state", "MedianSettings"),
    ("dapple_dp.transforms.kmeans.k_prototypes.columns", "Columns"),
    ("dapple_dp.transforms.kmeans.k_prototypes.state", "PrototypeSettings"),
    ("dapple_dp.transforms.kmeans.lloyd.box", "LloydSettings"),
    ("dapple_dp.transforms.kmeans.lloyd.state", "ClippingBounds MeansSettings"),
    ("dapple_dp.transforms.kmeans.spherical.state", "SphericalSettings"),
    ("dapple_dp.transforms.core.statistics.term_cells", "CellLimits"),
    ("dapple_dp.transforms.profile.rows", "ProfileParams"),
    ("dapple_dp.transforms.reports.decode", "DecodeParams"),
    ("dapple_dp.transforms.trusted_zone.assign_rows", "AssignParams"),
    ("dapple_dp.transforms.trusted_zone.evaluate_models", "ScoreParams"),
    ("dapple_dp.transforms.trusted_zone.sweep_cells", "Starts"),
)

AUDITED_TYPES = _BEAM | WHOLE | STATES | CONTRACTS | ROW_REFERENCES | SHARE_LAWS | _VALUES

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
"""Attributes of Beam's objects, which declare none. All other audited types declare their fields."""

BEAM_FUNCTIONS: frozenset[str] = frozenset({"apache_beam.transforms.sideinputs:_global_window_mapping_fn"})
"""Functions inside Beam's own objects."""
