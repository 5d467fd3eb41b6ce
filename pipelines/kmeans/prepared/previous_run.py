"""The earlier run that a recurring one follows: read back from its output folder, and checked to be of its kind."""

import dataclasses
import hashlib
import json
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.model import ClusterModel, model_from_tables
from schemas.privacy.plan import PrivacyUnit
from schemas.tables.encoder import Encoder
from transforms.files.octets import read_bytes, table_from_bytes
from transforms.files.publish import CENTERS_FILE, RELEASES_FILE
from transforms.files.saved_model import MANIFEST, SavedModel, load_model
from transforms.numerics.statistics.frame import Frame

_PRIVACY = "privacy.json"
_SETTING = "recurring.previous"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreviousRun:
    """Releases of an earlier run and what followed from them.

    Attributes:
      run_id: its name.
      saved: its centers, and how rows become vectors for them.
      model: centers in the order of their numbers, and releases.
      rows: where each of these centers was when it was released.
      next_number: the least cluster number that it and the runs before it have not used.
      unit: its privacy unit.
      frame: its public frame, as `frame_json` writes it; None where it had none that a later run can share.
    """

    run_id: str
    saved: SavedModel
    model: ClusterModel
    rows: tuple[int, ...]
    next_number: int
    unit: PrivacyUnit
    frame: dict[str, Any] | None

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.saved.folder

    def check(self, config: FitConfig, features: tuple[str, ...], encoder: Encoder | None) -> None:
        """Refuses a run whose centers mean something else than those of this job.

        Args:
          config: the job.
          features: names of the coordinates of its centers.
          encoder: its own.

        Raises:
          ConfigError: in one sentence.
        """
        rule = f"{_SETTING} must be a run"
        if self.saved.feature_names != features:
            raise ConfigError(
                f"{rule} with the features of this job in their order, got others in {self.folder}; name its run, or "
                "leave recurring out."
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

    def check_frame(self, frame: Frame) -> None:
        """Refuses a warm start in another frame: centers would be clipped and measured otherwise.

        Raises:
          ConfigError: naming the first difference.
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


def _encoding(encoder: Encoder | None) -> Any:
    return None if encoder is None else json.loads(json.dumps(encoder.to_json()))


def frame_json(frame: Frame) -> dict[str, Any]:
    """A public frame as `run.json` holds it."""
    return {
        "clipping_norm": frame.lattice.clipping_norm,
        "domain": None if frame.box is None else [frame.box.low, frame.box.high],
        "center": frame.lattice.center.tolist(),
    }


def load_previous(folder: str) -> PreviousRun:
    """The run in a fit's output folder; releases only, nothing private.

    Raises:
      ConfigError: if it holds no finished private fit, or a file is not the one that the fit wrote.
    """
    saved = load_model(folder, _SETTING)
    manifest: dict[str, Any] = json.loads(read_bytes(FileSystems.join(saved.folder, MANIFEST)))
    if manifest.get("private") is False:
        raise ConfigError(
            f"{_SETTING} must be a private fit, got one without privacy in {saved.folder}; its centers are not "
            "released, so nothing may follow from them."
        )
    centers, releases, privacy = (
        _file(saved.folder, manifest, name) for name in (CENTERS_FILE, RELEASES_FILE, _PRIVACY)
    )
    try:
        clusters, model = manifest["clusters"], model_from_tables(*map(table_from_bytes, (centers, releases)))
        return PreviousRun(
            run_id=str(manifest["run_id"]),
            saved=saved,
            model=model,
            rows=tuple(int(row) for row in clusters["released_rows"]),
            next_number=int(clusters["next_number"]),
            unit=PrivacyUnit(json.loads(privacy)["unit"]),
            frame=manifest["frame"],
        )
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{MANIFEST} in {saved.folder} must name clusters, frame and privacy unit, got something else; fit again."
        ) from error


def _file(folder: str, manifest: dict[str, Any], name: str) -> bytes:
    """A file that the manifest lists."""
    try:
        content = read_bytes(FileSystems.join(folder, name))
    except (OSError, BeamIOError) as error:
        raise ConfigError(
            f"{_SETTING} must be the output folder of a finished private fit, with {name}, got {folder}; "
            "check the path."
        ) from error
    if manifest["files"].get(name) != hashlib.sha256(content).hexdigest():
        raise ConfigError(f"{name} in {folder} must be the file that fit wrote, got another; fit again.")
    return content
