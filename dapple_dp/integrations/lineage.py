"""A finished run as an OpenLineage event, with what it spent as a facet.

The event is plain data in the format of OpenLineage 2-0-2, so nothing has to be installed to make it. It holds what the
run has published, names of data sets, and the place of the run in the ledger; it holds nothing computed from rows.
"""

import datetime
import hashlib
import re
import uuid
from collections.abc import Sequence
from typing import Annotated, Any

from apache_beam.io.filesystems import FileSystems
from pydantic import Field

from pipelines.ledger.store import Ledger
from pipelines.run.folder import MANIFEST, PRIVACY_FILE
from schemas.errors import ConfigError
from schemas.settings import json_schema
from schemas.settings.json_schema import NumberedContent
from schemas.settings.refusal import Refusal
from schemas.settings.run_manifest import Digest, RunManifest
from transforms.files import gate

SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
PRODUCER = "urn:dapple-dp:lineage"
FACET = "dapple_privacy"
_FACET_SCHEMA = f"{PRODUCER}#DapplePrivacyRunFacet"
_STORE = re.compile(r"(\w[\w+.-]*://[^/]+)/(.+)")


class _Finished(RunManifest):
    run_id: str
    config_digest: Digest


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
    manifest = gate.read_json(FileSystems.join(run, MANIFEST), _Finished, refusal)
    facet = _facet(run, manifest, refusal) | {
        "ledgerEntry": None if ledger is None else _entry(ledger, manifest.run_id)
    }
    ended = datetime.datetime.now(datetime.UTC) if time is None else time
    return _event(f"{namespace}/{job}/{manifest.run_id}", ended, facet) | {
        "job": {"namespace": namespace, "name": job, "facets": {}},
        "inputs": [_dataset(path) for path in inputs],
        "outputs": [_dataset(run)],
    }


def _event(name: str, ended: datetime.datetime, facet: dict[str, Any]) -> dict[str, Any]:
    """An event without job and data sets; the name of a run gives its id."""
    run_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}{name}")
    return {
        "eventType": "COMPLETE",
        "eventTime": ended.isoformat(),
        "producer": PRODUCER,
        "schemaURL": SPEC,
        "run": {"runId": str(run_id), "facets": {FACET: facet}},
    }


def _facet(run: str, manifest: _Finished, refusal: Refusal) -> dict[str, Any]:
    """What the run states of its privacy, the file checked against the manifest."""
    names = {"_producer": PRODUCER, "_schemaURL": _FACET_SCHEMA, "configDigest": manifest.config_digest}
    if PRIVACY_FILE not in manifest.files:
        nothing = dict.fromkeys(("epsilon", "delta", "unit", "neighboringRelation", "trust"))
        return names | {"private": False} | nothing
    raw = gate.read_bytes(FileSystems.join(run, PRIVACY_FILE), refusal)
    if hashlib.sha256(raw).hexdigest() != manifest.files[PRIVACY_FILE]:
        raise ConfigError(f"{PRIVACY_FILE} in {run} must be the file that the job wrote, got another; run it again.")
    stated = json_schema.parsed(raw, _Stated, refusal)
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
            f"ledger must hold an entry of run {run_id}, got {ledger} without; name the run's own ledger."
        )
    return {"sequence": own[-1].sequence, "kind": own[-1].kind, "digest": own[-1].digest}


def _dataset(path: str) -> dict[str, Any]:
    """A data set by the naming rules of OpenLineage: a store and a path in it."""
    store = _STORE.fullmatch(path)
    namespace, name = ("file", path.removeprefix("file://")) if store is None else store.groups()
    return {"namespace": namespace, "name": name, "facets": {}}
