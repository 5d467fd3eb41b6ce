"""Commands and their groups: description, flags, settings and an example of each, without importing jobs."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from dapple_dp.pipelines.run.flags import OUTPUT_FLAGS
from dapple_dp.schemas.choices import Runner, Tier

_RELEASED = ("--exchange", "--released")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One job of the command line.

    Attributes:
      module: module that defines the job's `JOB`; it imports Beam.
      about: one line on what the job does.
      load: `module:function` that validates the text of a config file; imports no Beam.
      models: `module:name` of the types of the settings.
      example: example of the settings, as YAML.
      flags: flags besides --config and Beam's.
      section: section that the job adds to the settings of another job; `models` then describes only this section.
      tier: stability of the job; an unsupported one needs `experimental: true`.
      more: extra settings that it accepts in other jobs' types, as JSON Schema by type.
      in_process: whether it can also run without Beam.
    """

    module: str
    about: str
    load: str
    models: tuple[str, ...]
    example: str
    flags: tuple[str, ...] = OUTPUT_FLAGS
    section: str = ""
    tier: Tier = Tier.SUPPORTED
    more: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    in_process: bool = False

    @property
    def runners(self) -> tuple[Runner, ...]:
        """Beam's runners, plus `InProcess` if the job supports it."""
        return tuple(runner for runner in Runner if self.in_process or runner is not Runner.IN_PROCESS)

    @property
    def line(self) -> str:
        """Description of the job, with its tier unless it is supported."""
        return self.about if self.tier is Tier.SUPPORTED else f"{self.about} ({self.tier})"

    def loaded(self, text: str) -> Any:
        """Parses the settings in a text; raises ConfigError if they are invalid."""
        return import_name(self.load)(text)


def import_name(path: str) -> Any:
    """Imports the object that `module:name` refers to."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


_DATA = "data: {path: lake, features: [age, hours]}\n"
_PRIVACY = "privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}\n"
_FIT = f"""algorithm: dp_lloyd
{_DATA}n_clusters: 5
{_PRIVACY}clipping: {{norm: domain, center: none}}
dp_lloyd: {{domain: [0, 100]}}
"""
_MASKED = f"""algorithm: feddp_kmeans
{_DATA}server_data: {{path: public.parquet}}
n_clusters: 5
{_PRIVACY}clipping: {{norm: server_radius, center: server_mean}}
trust: masked
masked: {{scheme: shared_secret, secret_uri: clients.secret}}
"""
_TOPICS = """algorithm: spherical
data: {path: texts, features: embedding, client_id: person}
n_clusters: 30
privacy: {epsilon: 2.0, delta: 1.0e-6}
clipping: {client_rows: 10}
names: {column: tags, vocabulary: vocabulary.txt}
"""
_CLIENTS_LOAD = "dapple_dp.schemas.kmeans.fit_config:load_config"
_FIT_MODEL = "dapple_dp.schemas.kmeans.jobs.all_fits:FitConfig"
_POOLED_MODEL = "dapple_dp.schemas.kmeans.jobs.pooled_config:PooledFitConfig"
_ENCODE = "dapple_dp.schemas.reports.config:EncodeConfig"
_WITH_SEED = {"EncodeConfig": {"seed": {"type": "integer", "minimum": 0}, "windows": {"type": "object"}}}
_WITH_WINDOWS = _WITH_SEED | {"ShuffleConfig": {"windows": {"type": "object"}}}

WORDS: Mapping[str, Word] = {
    "fit": Word(
        module="dapple_dp.pipelines.command.fit",
        about="cluster privately: centers, noisy sizes, the guarantee and a report",
        load="dapple_dp.pipelines.command.settings:fit",
        models=(_FIT_MODEL, _POOLED_MODEL),
        example=_FIT,
        in_process=True,
    ),
    "topics": Word(
        module="dapple_dp.pipelines.command.topics",
        about="find what texts are about, privately: topics with names from a public vocabulary",
        load="dapple_dp.schemas.kmeans.jobs.topics_config:load_topics",
        models=("dapple_dp.schemas.kmeans.spherical_config:SphericalFit",),
        example=_TOPICS,
        in_process=True,
    ),
    "stream": Word(
        module="dapple_dp.pipelines.kmeans.stream.job",
        about="release windows as they are due, night after night, under one charge",
        load="dapple_dp.schemas.kmeans.jobs.stream_config:load_stream_config",
        models=("dapple_dp.schemas.kmeans.jobs.stream_config:StreamOptions",),
        section="stream",
        flags=("--output", "--once", "--drain", "--catch_up"),
        example=f"{_FIT.replace('lake,', 'lake, name: visits,')}ledger: ledger.sqlite\n"
        "stream: {start: runs/first, name: year, column: dt, first: 2026-01-01, windows: 365, once: x}\n",
    ),
    "prepare": Word(
        module="dapple_dp.pipelines.tables.prepare",
        about="group the rows of each client in one private copy, for many jobs",
        load="dapple_dp.schemas.kmeans.jobs.model_job:load_prepare_config",
        models=("dapple_dp.schemas.kmeans.jobs.model_job:PrepareConfig", _FIT_MODEL, _POOLED_MODEL),
        example="data: {path: lake, features: x, client_id: person}\n",
    ),
    "assign": Word(
        module="dapple_dp.pipelines.trusted_zone.assign",
        about="write the nearest center of every row; not private, stays in the trusted zone",
        load="dapple_dp.schemas.trusted_zone.job_configs:load_assign_config",
        models=("dapple_dp.schemas.trusted_zone.job_configs:AssignConfig",),
        flags=(*OUTPUT_FLAGS, "--level", "--least_size"),
        example="data: {path: lake, features: [age, hours]}\nmodel: runs/fit\n",
    ),
    "evaluate": Word(
        module="dapple_dp.pipelines.trusted_zone.evaluate",
        about="score released centers on all rows; not private, stays in the trusted zone",
        load="dapple_dp.schemas.trusted_zone.job_configs:load_evaluate_config",
        models=("dapple_dp.schemas.trusted_zone.job_configs:EvaluateConfig",),
        example="data: {path: lake, features: [age, hours]}\nmodel: runs/fit\n",
    ),
    "profile": Word(
        module="dapple_dp.pipelines.profile.job",
        about="describe the clusters of a fit privately: sizes, means, percentiles, histograms",
        load="dapple_dp.schemas.profile.config:load_profile_config",
        models=("dapple_dp.schemas.profile.config:ProfileConfig",),
        example="data: {path: lake, features: [age, hours]}\nmodel: runs/fit\n"
        "privacy: {unit: record, epsilon: 0.5, delta: 1.0e-7}\n"
        "profile: {numeric: {age: {lower: 17, upper: 90}}}\n",
    ),
    "sweep": Word(
        module="dapple_dp.pipelines.trusted_zone.sweep",
        about="compare methods, epsilons and seeds on the same rows; stays in the trusted zone",
        load="dapple_dp.schemas.trusted_zone.sweep_config:load_sweep_config",
        models=("dapple_dp.schemas.trusted_zone.sweep_config:SweepOptions",),
        section="sweep",
        example=f"{_FIT}sweep: {{methods: {{here: {{}}}}, epsilons: [0.5, 1.0], seeds: 5}}\n",
    ),
    "upload": Word(
        module="dapple_dp.pipelines.masked.upload",
        about="send one client's masked messages of the open round (trust masked)",
        load=_CLIENTS_LOAD,
        models=(_FIT_MODEL,),
        flags=(*_RELEASED, "--client"),
        example=_MASKED,
    ),
    "aggregate": Word(
        module="dapple_dp.pipelines.masked.aggregate",
        about="add up the masked messages of the open round and charge it (trust masked)",
        load="dapple_dp.pipelines.command.settings:aggregate",
        models=("dapple_dp.schemas.masked.config:AggregateConfig",),
        flags=("--exchange",),
        example="key_uri: aggregator.key\nthreshold: 10\n",
    ),
    "unmask": Word(
        module="dapple_dp.pipelines.masked.unmask",
        about="open a run and its rounds, and unmask the noisy sums (trust masked)",
        load=_CLIENTS_LOAD,
        models=(_FIT_MODEL,),
        flags=(*_RELEASED, "--run_id"),
        example=_MASKED,
    ),
    "encode": Word(
        module="dapple_dp.pipelines.reports.encode",
        about="make one private report per client, where no aggregator is trusted",
        load="dapple_dp.schemas.reports.config:load_encode_config",
        models=(_ENCODE,),
        more=_WITH_SEED,
        example="data: {path: devices, features: [age, hours], client_id: person}\nn_clusters: 5\n"
        "privacy: {unit: client, epsilon: 2.0}\ntree: {radius: 100.0}\n"
        "reports: {mode: local, variant: nested, min_batch: 100000}\n",
    ),
    "shuffle": Word(
        module="dapple_dp.pipelines.reports.shuffle",
        about="shuffle collected reports, so that none can be distinguished from the others",
        load="dapple_dp.schemas.reports.config:load_shuffle_config",
        models=("dapple_dp.schemas.reports.config:ShuffleConfig", _ENCODE),
        more=_WITH_WINDOWS,
        example="reports: {mode: shuffle, min_batch: 100000, arrived: arrived}\n",
    ),
    "decode": Word(
        module="dapple_dp.pipelines.reports.windows",
        about="make a model from collected reports, or one per window as they arrive",
        load="dapple_dp.schemas.reports.windows:load_any_decode",
        models=(
            "dapple_dp.schemas.reports.config:DecodeConfig",
            "dapple_dp.schemas.reports.windows:WindowedDecode",
            _ENCODE,
        ),
        more=_WITH_SEED,
        flags=(*OUTPUT_FLAGS, "--once"),
        example="reports: {mode: local, min_batch: 100000, path: encoded}\nseed: 7\n",
    ),
    "clustered_fl": Word(
        module="dapple_dp.pipelines.clustered_fl.job",
        about="cluster clients by how their data train a model, and train one per cluster",
        load="dapple_dp.schemas.clustered_fl.config:load_clustered_fl_config",
        models=("dapple_dp.schemas.clustered_fl.config:ClusteredFLConfig",),
        tier=Tier.EXPERIMENTAL,
        example="experimental: true\nalgorithm: r_dpcfl\n"
        "data: {path: lake, client_id: client_id, features: x, label: y, classes: 10}\n"
        "n_clusters: 4\nprivacy: {epsilon: 4.0, delta: 1.0e-4, adjacency: add_remove}\n"
        "training: {model: softmax, rounds: 40, local_epochs: 1, batch_size: 50, learning_rate: 0.4, "
        "clipping_norm: 1.0}\n",
    ),
}
"""All jobs, in the order of the help page."""
TOOLS: Mapping[str, str] = {
    "init": "write a first job with comments, from the names and types of columns",
    "plan": "show what a fit will release, cost and spend, before it spends anything",
    "verify": "check that the files of a run are whole and add up; sign them, or check the signature",
    "ledger": "set the limits of data sets; show, verify and export what runs have spent",
    "party": "take a party through a masked run; make its key, enroll it, or delete what it keeps",
    "clean": "list, and remove, what killed runs left beside their outputs",
    "schema": "print the JSON Schema of a job's settings, for editors",
    "schedule": "print the folder of the files for cron, Airflow and Dataflow",
    "completion": "print the completion of a shell: bash, zsh or fish",
}
"""Commands without settings, and what they do; they read no private rows, except `PARTY`, which runs jobs."""
PARTY = "party"
GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "masked": ("masked aggregation", ("upload", "aggregate", "unmask", PARTY)),
    "reports": ("private reports of clients", ("encode", "shuffle", "decode")),
    "tools": ("files and texts around jobs", ("clean", "schema", "schedule", "completion")),
}
"""Groups of commands: description and members."""
NEVER: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("prepare", "assign", "evaluate"), (3, 5)),
    "shuffle": (3, 5),
    **dict.fromkeys(("profile", "encode"), (5,)),
    "decode": (3,),
    "verify": (3, 4, 66),
    "plan": (4, 5),
    "clean": (4, 5, 66),
    "ledger": (4, 5, 66),
    "party": (3, 4, 66),
    "init": (3, 4, 5),
    **dict.fromkeys(("schema", "schedule", "completion"), (3, 4, 5, 66, 75)),
}
"""Exit codes that a command never returns, since it uses no ledger, builds no graph or runs no protocol."""
_GROUP_OF = {name: group for group, (_, names) in GROUPS.items() for name in names}


def spelled(name: str) -> str:
    """Returns the command as written after `dapple`, with its group."""
    return f"{_GROUP_OF[name]} {name}" if name in _GROUP_OF else name
