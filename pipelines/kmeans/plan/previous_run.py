"""The earlier run that a recurring run follows, read from its output folder and verified to be of the same kind."""

import dataclasses
import hashlib
import json
from typing import Any

from dapple_dp.pipelines.kmeans.plan.public_fit import frame_json
from dapple_dp.pipelines.ledger.private_state import Register, State, digest_of
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel, model_from_tables
from dapple_dp.schemas.kmeans.recurring.remembered import MEMORY_FILE, MEMORY_SCHEMA, Memory
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.settings.run_manifest import RELEASES_FILE, PreviousManifest, PrivacyFile
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.saved_model import MANIFEST, SavedModel, read_model
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.files.untrusted import TableForm

_PRIVACY = "privacy.json"
_SETTING = "recurring.previous"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreviousRun:
    """Releases of an earlier run and values derived from them.

    Attributes:
      run_id: id of the run.
      saved: centers, and the encoding of rows for them.
      model: centers in the order of their numbers, and releases.
      rows: position of each of these centers in the release.
      next_number: smallest cluster number that this run and earlier ones haven't used.
      unit: privacy unit.
      manifest: SHA-256 of `run.json`, which lists all files of the run.
      frame: public frame in the form of `frame_json`; None if it has none that a later run can share.
      epoch: its epoch; None if it was no window of one.
      memory: summary of the runs so far, including this one; None without a memory.
    """

    run_id: str
    saved: SavedModel
    model: ClusterModel
    rows: tuple[int, ...]
    next_number: int
    unit: PrivacyUnit
    frame: dict[str, Any] | None
    manifest: str = ""
    memory: Memory | None = None
    epoch: dict[str, Any] | None = None

    @property
    def folder(self) -> str:
        """Path of the run's output folder."""
        return self.saved.folder

    def check(self, config: FitConfig, features: tuple[str, ...], encoder: Encoder | None) -> None:
        """Refuses a run whose centers don't have the same meaning as those of this job.

        Args:
          config: the job.
          features: coordinate names of the job's centers.
          encoder: encoder of the job.

        Raises:
          ConfigError: if features, encoding, unit, cluster number or window differ.
        """
        rule = f"{_SETTING} must be a run"
        if self.saved.feature_names != features:
            raise ConfigError(
                f"{rule} with the features of this job in their order, got others in {self.folder}; name another run, "
                "or leave recurring out."
            )
        if _encoding(self.saved.encoder) != _encoding(encoder):
            raise ConfigError(
                f"{rule} with the encoding of this job, got another in {self.folder}; write the parameters of its "
                "run.json in the encode section, or leave recurring out."
            )
        if self.unit is not config.privacy.unit:
            raise ConfigError(
                f"{rule} of privacy.unit {config.privacy.unit}, got {self.unit} in {self.folder}; centers of another "
                "unit are other means, so leave recurring out."
            )
        if config.starts_warm and self.model.n_clusters != config.max_clusters:
            raise ConfigError(
                f"n_clusters must be {self.model.n_clusters} like that of {self.folder} for a warm start, got "
                f"{config.max_clusters}; write that, or recurring.warm_start: false."
            )
        if isinstance(config, WindowsFit) and config.epoch.index:
            self._check_window(config.at(config.epoch.index - 1).covers)
            self._check_released(config)

    def _check_released(self, config: WindowsFit) -> None:
        """Refuses files that differ from what the previous window released under the same ledger."""
        refusal = Refusal(
            kind=LedgerRefusedError,
            rule=f"{_SETTING} must be the window before as it was released, in {self.folder}",
            remedy="restore the output and the ledger of the same time, or begin an epoch of another name",
        )
        register = Register(str(config.ledger), str(config.data.name), config.epoch.name)
        register.check(State.MANIFEST, config.epoch.index - 1, self.manifest, refusal)

    def _check_window(self, wanted: dict[str, Any]) -> None:
        """Refuses a run that isn't the window described by `wanted`, in the form of `run.json`."""
        if self.epoch != wanted or self.memory is None:
            raise ConfigError(
                f"{_SETTING} must be the window of {wanted['window']} of epoch {wanted['name']} with the same section, "
                f"got another run in {self.folder}; name that window's run."
            )

    def check_frame(self, frame: Frame) -> None:
        """Refuses a warm start in another frame, in which centers would be clipped and measured differently.

        Raises:
          ConfigError: with the first difference.
        """
        own = frame_json(frame)
        if self.frame is None:
            differing = "frame"
        else:
            differing = next((name for name in own if own[name] != self.frame.get(name)), "")
        if differing:
            raise ConfigError(
                f"clipping must give the frame of {self.folder} for a warm start, got another {differing}; see frame "
                "in its run.json and use the same norm, domain and server data, or write recurring.warm_start: false."
            )


def _encoding(encoder: Encoder | None) -> str | None:
    return None if encoder is None else json.dumps(encoder.to_json(), sort_keys=True)


def load_previous(folder: str) -> PreviousRun:
    """Loads an earlier fit from its output folder; reads releases only, nothing private.

    Raises:
      ConfigError: if the folder holds no finished private fit, or a file was changed.
    """
    saved, raw, centers = read_model(folder, _SETTING)
    rule = f"{MANIFEST} in {saved.folder} must name clusters, frame and privacy unit"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="fit again")
    if json_schema.parse_as(raw, dict[str, Any], refusal).get("private") is False:
        raise ConfigError(
            f"{_SETTING} must be a private fit, got one without privacy in {saved.folder}; its centers are not "
            "released, so nothing may follow from them."
        )
    manifest = json_schema.parse_as(raw, PreviousManifest, refusal)
    releases, privacy = (_file(saved.folder, manifest, name) for name in (RELEASES_FILE, _PRIVACY))
    tables = (
        untrusted.table_of(centers, refusal, TableForm.by_size(n_rows=len(saved.centers))),
        untrusted.table_of(releases, refusal, TableForm.by_size(RELEASE_SCHEMA)),
    )
    with refusal.covers():
        run = _run_of(saved, manifest, model_from_tables(*tables), json_schema.parse_as(privacy, PrivacyFile, refusal))
        run = dataclasses.replace(run, manifest=digest_of(raw))
    if MEMORY_FILE not in manifest.files:
        return run
    content, n_features = _file(saved.folder, manifest, MEMORY_FILE), run.model.centers.shape[1]
    return dataclasses.replace(run, memory=memory_from(content, run.model.cluster_numbers, n_features, saved.folder))


def memory_from(content: bytes, numbers: tuple[int, ...], n_features: int, folder: str) -> Memory:
    """Parses the memory file of a run.

    Args:
      content: bytes of the file.
      numbers: cluster numbers, ascending.
      n_features: number of features.
      folder: folder of the run, for the error message.

    Raises:
      ConfigError: if the file is malformed or has other clusters.
    """
    rule = f"{MEMORY_FILE} in {folder} must be the file that fit wrote"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="fit again")
    table = untrusted.table_of(content, refusal, _memory_form(n_features))
    with refusal.covers():
        return Memory.from_table(table, numbers, n_features)


def _memory_form(n_features: int) -> TableForm:
    """Table form of the memory file: two lists per row; random noise keeps rows from compressing to nothing."""
    return TableForm(schema=MEMORY_SCHEMA, row_bytes=32 * n_features + (1 << 9), least_bytes=8)


def _run_of(saved: SavedModel, manifest: PreviousManifest, model: ClusterModel, privacy: PrivacyFile) -> PreviousRun:
    """Assembles the run; raises MalformedError if its parts contradict each other."""
    clusters, frame = manifest.clusters, manifest.frame
    rows = tuple(clusters.released_rows)
    if sorted(rows) != list(range(model.n_clusters)) or clusters.next_number <= max(model.cluster_numbers):
        raise MalformedError("numbers of other clusters")
    return PreviousRun(
        run_id=manifest.run_id,
        saved=saved,
        model=model,
        rows=rows,
        next_number=clusters.next_number,
        unit=PrivacyUnit(privacy.unit),
        frame=None if frame is None else frame.model_dump(),
        epoch=manifest.epoch,
    )


def _file(folder: str, manifest: PreviousManifest, name: str) -> bytes:
    """Reads a file that the manifest lists, and verifies its digest."""
    rule = f"{_SETTING} must be the output folder of a finished private fit, with {name}"
    content = untrusted.read_bytes(join(folder, name), Refusal(kind=ConfigError, rule=rule, remedy="check the path"))
    if manifest.files.get(name) != hashlib.sha256(content).hexdigest():
        raise ConfigError(f"{name} in {folder} was changed after the fit wrote it; fit again.")
    return content
