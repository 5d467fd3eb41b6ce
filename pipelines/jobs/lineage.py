"""OpenLineage events for the start and the end of a run, with its privacy spending as a facet.

Events are plain data in the format of OpenLineage 2-0-2, so they need no extra library. They hold what the run has
published, names of data sets, and the run's place in the ledger, but nothing computed from rows. The duration of a run
depends on its rows, so a start event has the public start time (that of the command, or the due time of the window if
later), and an end event a time one millisecond later, unless private times are asked for.
"""

import contextlib
import datetime
import hashlib
import http.client
import json
import logging
import os
import re
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE
from dapple_dp.pipelines.run.signals.exports import EXPORTS
from dapple_dp.schemas.errors import ConfigError, DappleError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.json_schema import NumberedContent
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import ChargedManifest, RunManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, join

SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
PRODUCER = "urn:dapple-dp:lineage"
FACET = "dapple_privacy"
_FACET_SCHEMA = f"{PRODUCER}#DapplePrivacyRunFacet"
_LOGGER = logging.getLogger(__name__)
_NAMESPACE = "dapple"
_PARENT_SCHEMA = "https://openlineage.io/spec/facets/1-0-1/ParentRunFacet.json#/$defs/ParentRunFacet"
_ANSWER_SECONDS = 10.0
_STORE = re.compile(r"(\w[\w+.-]*://[^/]+)/(.+)")


class _Finished(RunManifest, ChargedManifest):
    """The files of a run, and its identity in the ledger."""


class _Stated(NumberedContent):
    epsilon: Annotated[float, Field(ge=0.0)]
    delta: Annotated[float, Field(ge=0.0, le=1.0)]
    unit: str
    neighboring_relation: str
    trust: str


def lineage_event(
    run: str,
    job: str,
    inputs: Sequence[str] = (),
    *,
    namespace: str = "dapple",
    ledger: str | None = None,
    time: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Returns the event for a completed run, ready for `json.dumps` and a lineage server.

    Args:
      run: output folder of a finished job.
      job: name of the job in the lineage, for example "nightly_fit".
      inputs: paths of its tables. They are sent as they are, so leave out names that are private.
      namespace: namespace of the job.
      ledger: path of the ledger that was charged; None for no ledger.
      time: end of the run, with a time zone; None for now.

    Returns:
      The event. The facet `dapple_privacy` of its run has `private`, whether the output is released under differential
      privacy, `epsilon`, `delta`, `unit`, `neighboringRelation`, `trust`, `configDigest`, and `ledgerEntry` with the
      sequence number, the kind and the digest of the run's last entry. Events of one run have one `runId`.

    Raises:
      ConfigError: if the folder holds no finished run, or the ledger has no entry for it.
      LedgerRefusedError: if the ledger is missing or was changed.
    """
    rule = f"run must be the output folder of a finished job, with {MANIFEST}"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
    manifest = untrusted.read_json(join(run, MANIFEST), _Finished, refusal)
    facet = _facet(run, manifest, refusal) | {
        "ledgerEntry": None if ledger is None else _entry(ledger, manifest.run_id)
    }
    ended = datetime.datetime.now(datetime.UTC) if time is None else time
    name = f"{namespace}/{job}/{manifest.run_id}"
    return _event("COMPLETE", ended, name, {FACET: facet}) | _about(job, inputs, [run], namespace)


def _event(kind: str, time: datetime.datetime, name: str, facets: dict[str, Any]) -> dict[str, Any]:
    """An event without its job and data sets; the id of the run is derived from its name."""
    return {
        "eventType": kind,
        "eventTime": time.isoformat(),
        "producer": PRODUCER,
        "schemaURL": SPEC,
        "run": {"runId": _id(name), "facets": facets},
    }


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}{name}"))


def _about(job: str, inputs: Sequence[str], outputs: Sequence[str], namespace: str = _NAMESPACE) -> dict[str, Any]:
    return {
        "job": {"namespace": namespace, "name": job, "facets": {}},
        "inputs": [_dataset(path) for path in inputs],
        "outputs": [_dataset(path) for path in outputs],
    }


_RUNS = list[tuple[str, str]]()
"""Jobs and names of the runs in progress in this process, outermost first."""


@contextlib.contextmanager
def report_lineage(job: str, run_id: str, settings: Any, output: str, begun: datetime.datetime) -> Iterator[None]:
    """Reports the start and the end of a run if lineage is enabled; failures to report don't stop the run.

    Args:
      job: name of the command.
      run_id: id of the run.
      settings: settings of the run, which name its input and its ledger.
      output: output folder; empty for a job without one.
      begun: public start time, which doesn't reveal how long earlier runs took.
    """
    target = EXPORTS.wanted.lineage
    if not target:
        yield
        return
    name, began = f"{_NAMESPACE}/{job}/{run_id}", _now() if EXPORTS.wanted.private else begun
    around = dict[str, Any]()
    if _RUNS:
        outer, outer_name = _RUNS[-1]
        parent = {"run": {"runId": _id(outer_name)}, "job": {"namespace": _NAMESPACE, "name": outer}}
        around["parent"] = {"_producer": PRODUCER, "_schemaURL": _PARENT_SCHEMA, **parent}
    about = _about(job, _inputs(settings), [output] if output else [])
    _send(target, _event("START", began, name, around) | about)
    _RUNS.append((job, name))
    try:
        yield
    except BaseException as error:
        kind, code = ("FAIL", error.exit_code) if isinstance(error, DappleError) else ("FAIL", 1)
        kind, code = ("ABORT", 130) if isinstance(error, KeyboardInterrupt) else (kind, code)
        failure = {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}#DappleFailureRunFacet", "exitCode": code}
        _send(target, _event(kind, _end(began), name, around | {"dapple_failure": failure}) | about)
        raise
    else:
        facets = around | _spent(output, run_id, getattr(settings, "ledger", None))
        _send(target, _event("COMPLETE", _end(began), name, facets) | about)
    finally:
        _RUNS.pop()


def _inputs(settings: Any) -> list[str]:
    """Paths of the tables that a job reads, as written in its settings."""
    found = [getattr(getattr(settings, each, None), "path", None) for each in ("data", "server_data")]
    template = getattr(settings, "template", None)
    return [each for each in found if isinstance(each, str)] + ([] if template is None else _inputs(template))


def _end(began: datetime.datetime) -> datetime.datetime:
    return _now() if EXPORTS.wanted.private else began + datetime.timedelta(milliseconds=1)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _spent(output: str, run_id: str, ledger: str | None) -> dict[str, Any]:
    """Returns the privacy facet of a completed run; {} for a job without a manifest, such as a stream."""
    manifest = join(output, MANIFEST)
    if not output or not STORE.exists(manifest):
        return {}
    try:
        found = lineage_event(output, "", ledger=ledger)["run"]["facets"]
    except Exception as error:  # noqa: BLE001 - the run is published and paid
        _LOGGER.warning("warning: the spending of run %s could not be reported: %s", run_id, describe_unexpected(error))
        return {}
    return dict(found)


def _send(target: str, event: dict[str, Any]) -> None:
    """Appends an event to a file or posts it; logs a warning if that fails."""
    content = json.dumps(event, allow_nan=False).encode()
    try:
        if "://" in target:
            _post(target, content)
        else:
            with open(target, "ab") as file:
                file.write(content + b"\n")
    except (OSError, ValueError, http.client.HTTPException) as error:
        _LOGGER.warning("warning: an event of lineage could not be sent: %s", type(error).__name__)


def _post(url: str, content: bytes) -> None:
    """Posts an event as OpenLineage's client does; the API key is in the environment."""
    headers = {"Content-Type": "application/json"}
    key = os.environ.get("OPENLINEAGE_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    with urllib.request.urlopen(urllib.request.Request(url, content, headers), timeout=_ANSWER_SECONDS):
        pass


def _facet(run: str, manifest: _Finished, refusal: Refusal) -> dict[str, Any]:
    """Returns the privacy facet of a run, after verifying `privacy.json` against the manifest."""
    names = {"_producer": PRODUCER, "_schemaURL": _FACET_SCHEMA, "configDigest": manifest.config_digest}
    if PRIVACY_FILE not in manifest.files:
        nothing = dict.fromkeys(("epsilon", "delta", "unit", "neighboringRelation", "trust"))
        return names | {"private": False} | nothing
    raw = untrusted.read_bytes(join(run, PRIVACY_FILE), refusal)
    if hashlib.sha256(raw).hexdigest() != manifest.files[PRIVACY_FILE]:
        raise ConfigError(f"{PRIVACY_FILE} in {run} was changed after the job wrote it; run the job again.")
    stated = json_schema.parse_as(raw, _Stated, refusal)
    return names | {
        "private": True,
        "epsilon": stated.epsilon,
        "delta": stated.delta,
        "unit": stated.unit,
        "neighboringRelation": stated.neighboring_relation,
        "trust": stated.trust,
    }


def _entry(ledger: str, run_id: str) -> dict[str, Any]:
    own = [entry for entry in Ledger(ledger).entries() if entry.run == run_id]
    if not own:
        raise ConfigError(f"{ledger} has no entry of run {run_id}; name the run's own ledger.")
    return {"sequence": own[-1].sequence, "kind": own[-1].kind, "digest": own[-1].digest}


def _dataset(path: str) -> dict[str, Any]:
    """Names a data set as OpenLineage does: a store and a path in it."""
    store = _STORE.fullmatch(path)
    namespace, name = ("file", path.removeprefix("file://")) if store is None else store.groups()
    return {"namespace": namespace, "name": name, "facets": {}}
