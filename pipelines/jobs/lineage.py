"""Runs as OpenLineage events, with what they spent as a facet: when they begin, and how they end.

Events are plain data in the format of OpenLineage 2-0-2, so nothing has to be installed to make them. They hold what
the run has published, names of data sets, and the place of the run in the ledger; they hold nothing computed from rows.
How long a run took depends on the rows. So the time of an event is that of the command's begin, or the later moment at
which a window was due, and a millisecond more for an end, unless someone asks for what is private.
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
from dapple_dp.transforms.files import gate
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
    """The files of a run, and what a ledger knows it by."""


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
    """The event that a run is complete, ready for `json.dumps` and the endpoint of a lineage server.

    Args:
      run: output folder of a finished job.
      job: name of the job in the lineage, for example "nightly_fit".
      inputs: paths of its tables. They are sent as they are, so leave out a name that is itself private.
      namespace: of the job.
      ledger: path of the ledger that the run was charged to; None if to none.
      time: when the run ended, with a time zone; None for now.

    Returns:
      The event. The facet `dapple_privacy` of its run has `private`, whether the output is released under differential
      privacy, `epsilon`, `delta`, `unit`, `neighboringRelation`, `trust`, `configDigest`, and `ledgerEntry` with the
      sequence number, the kind and the digest of the run's last entry. Events of one run have one `runId`.

    Raises:
      ConfigError: if the folder holds no finished run, or the ledger has no entry of it.
      LedgerRefusedError: if there is no ledger, or it was changed.
    """
    rule = f"run must be the output folder of a finished job, with {MANIFEST}"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
    manifest = gate.read_json(join(run, MANIFEST), _Finished, refusal)
    facet = _facet(run, manifest, refusal) | {
        "ledgerEntry": None if ledger is None else _entry(ledger, manifest.run_id)
    }
    ended = datetime.datetime.now(datetime.UTC) if time is None else time
    name = f"{namespace}/{job}/{manifest.run_id}"
    return _event("COMPLETE", ended, name, {FACET: facet}) | _about(job, inputs, [run], namespace)


def _event(kind: str, time: datetime.datetime, name: str, facets: dict[str, Any]) -> dict[str, Any]:
    """An event without job and data sets; the name of a run gives its id."""
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
"""Words and names of the runs that this process works on, the outermost first."""


@contextlib.contextmanager
def report_lineage(job: str, run_id: str, settings: Any, output: str, begun: datetime.datetime) -> Iterator[None]:
    """Reports the begin and the end of a run, where someone wants to know; a run does not depend on it.

    Args:
      job: word of the command.
      run_id: of the run.
      settings: of the run, which name its input and its ledger.
      output: its folder; empty for a job without one.
      begun: when it began for others, who must not see how long the runs before it took.
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
    """Paths of the tables that a job reads, as its settings spell them."""
    found = [getattr(getattr(settings, each, None), "path", None) for each in ("data", "server_data")]
    template = getattr(settings, "template", None)
    return [each for each in found if isinstance(each, str)] + ([] if template is None else _inputs(template))


def _end(began: datetime.datetime) -> datetime.datetime:
    return _now() if EXPORTS.wanted.private else began + datetime.timedelta(milliseconds=1)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _spent(output: str, run_id: str, ledger: str | None) -> dict[str, Any]:
    """The facet of a run that is complete; none of a job without a manifest, as that of a stream."""
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
    """Appends an event to a file, or posts it; warns if neither can be done."""
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
    """As the client of OpenLineage does; its key is in the environment."""
    headers = {"Content-Type": "application/json"}
    key = os.environ.get("OPENLINEAGE_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    with urllib.request.urlopen(urllib.request.Request(url, content, headers), timeout=_ANSWER_SECONDS):
        pass


def _facet(run: str, manifest: _Finished, refusal: Refusal) -> dict[str, Any]:
    """What the run states of its privacy, the file checked against the manifest."""
    names = {"_producer": PRODUCER, "_schemaURL": _FACET_SCHEMA, "configDigest": manifest.config_digest}
    if PRIVACY_FILE not in manifest.files:
        nothing = dict.fromkeys(("epsilon", "delta", "unit", "neighboringRelation", "trust"))
        return names | {"private": False} | nothing
    raw = gate.read_bytes(join(run, PRIVACY_FILE), refusal)
    if hashlib.sha256(raw).hexdigest() != manifest.files[PRIVACY_FILE]:
        raise ConfigError(f"{PRIVACY_FILE} in {run} must be the file that the job wrote, got another; run it again.")
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
        raise ConfigError(
            f"ledger must hold an entry of run {run_id}, got none in {ledger}; name the run's own ledger."
        )
    return {"sequence": own[-1].sequence, "kind": own[-1].kind, "digest": own[-1].digest}


def _dataset(path: str) -> dict[str, Any]:
    """A data set by the naming rules of OpenLineage: a store and a path in it."""
    store = _STORE.fullmatch(path)
    namespace, name = ("file", path.removeprefix("file://")) if store is None else store.groups()
    return {"namespace": namespace, "name": name, "facets": {}}
