"""`dapple verify`: checks that a run's folder is unchanged and that its guarantee adds up.

The Ed25519 signature covers the bytes of `run.json`, which holds the digests of all other files.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Annotated, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from dapple_dp.pipelines.ledger.private_state import check_published, digest_of
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run.folder import MANIFEST, PRIVACY_FILE, manifest_digest
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError, InputError, LedgerRefusedError, ProtocolError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.charge import alike
from dapple_dp.schemas.privacy.ledger_entry import RunStatus, run_states
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA, releases_from_table
from dapple_dp.schemas.privacy.statement import describe
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import NumberedFile
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import RELEASES_FILE, AccountFile, AskedFit, VerifiedManifest
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.kmeans.protocols import PROTOCOLS
from dapple_dp.transforms.privacy.key_files import key_digest

SIGNATURE_FILE = "signature.json"
_LABEL = b"dapple run signature 1\n"
_RUN = "run.json"
_MOST_BYTES = 1 << 14
_REMEDY = "get another copy of the run"
_NEARLY = 1e-6
"""Relative difference allowed between two versions of the accountant."""
_MOST_FILES = 100_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunCopy:
    """A copy of a run's folder.

    Attributes:
      folder: path on any Beam filesystem.
      raw: bytes of `run.json`.
      manifest: parsed `run.json`.
    """

    folder: str
    raw: bytes
    manifest: VerifiedManifest

    @classmethod
    def of(cls, folder: str) -> "RunCopy":
        """Opens the run in a folder.

        Raises:
          ConfigError: if the folder doesn't exist.
          ProtocolError: if it holds no manifest, or a changed one.
        """
        folder = folder.rstrip("/") or folder
        if not STORE.exists(folder) and not STORE.exists(join(folder, MANIFEST)):
            raise ConfigError(f"the folder {folder} does not exist; name the output folder of a run.")
        refusal = _refusal(MANIFEST, "be what a run wrote")
        _check_no_link(folder, MANIFEST)
        raw = untrusted.read_bytes(join(folder, MANIFEST), refusal)
        manifest = json_schema.parse_as(raw, VerifiedManifest, refusal)
        if manifest_digest(json_schema.parse_as(raw, dict[str, Any], refusal)) != manifest.manifest_digest:
            raise refusal.because("a changed one")
        return cls(folder=folder, raw=raw, manifest=manifest)

    def path(self, name: str) -> str:
        """Path of a file; names in the manifest never lead out of the folder."""
        return join(self.folder, name)

    def check_files(self) -> int:
        """Compares every file with its digest and refuses others; returns the number of files."""
        listed = self.manifest.files
        for name in sorted(listed):
            _check_no_link(self.folder, name)
            if untrusted.digest(self.path(name), _refusal(name, "be there")) != listed[name]:
                raise _refusal(name, "be as the run wrote it").because("a changed one")
        known = {*listed, MANIFEST, SIGNATURE_FILE}
        for name in itertools.islice(_names(self.folder), _MOST_FILES):
            if name not in known:
                raise ProtocolError(f"{name!r} is not listed in run.json; remove it.")
        return len(listed)

    def content(self, name: str) -> bytes:
        """Reads a file and verifies its digest."""
        refusal = _refusal(name, "be as the run wrote it")
        raw = untrusted.read_bytes(self.path(name), refusal)
        if hashlib.sha256(raw).hexdigest() != self.manifest.files.get(name):
            raise refusal.because("a changed one")
        return raw


def run(given: SimpleNamespace) -> dict[str, Any]:
    """Runs the command; returns the summary that is printed last.

    Raises:
      ProtocolError: for the first file that was altered or doesn't add up.
    """
    if not all(is_local(path) for path in (given.folder, given.sign, given.key) if path is not None):
        from dapple_dp.pipelines.run.options import beam_options

        # Only stores other than this machine's files need Beam.
        beam_options([])
    copy = RunCopy.of(given.folder)
    n_files = copy.check_files()
    account = check_account(copy)
    if given.ledger is not None:
        _check_ledger(copy, given.ledger, account)
    if given.inputs is not None:
        _check_inputs(copy.manifest.run_id, given.inputs)
    signer = _sign(copy, given.sign) if given.sign is not None else _check_signature(copy, given.key)
    summary = {
        "folder": copy.folder,
        "run_id": copy.manifest.run_id,
        "files": n_files,
        "epsilon": None if account is None else account.epsilon,
        "delta": None if account is None else account.delta,
        "ledger": given.ledger is not None,
        "inputs": given.inputs is not None,
        "signed_by": signer,
        "key_known": given.key is not None or given.sign is not None,
        "verified": True,
    }
    sys.stdout.write(_words(summary))
    return summary


def check_account(copy: RunCopy) -> AccountFile | None:
    """Composes the releases of a fit again and compares them with `privacy.json`.

    Returns:
      The guarantee; None for other jobs, whose files are only compared with their digests.
    """
    manifest = copy.manifest
    if manifest.settings is None:
        if RELEASES_FILE in manifest.files and manifest.algorithm in PROTOCOLS:
            raise _refusal(MANIFEST, "hold the settings of the fit").because("none")
        return None
    account = json_schema.parse_as(copy.content(PRIVACY_FILE), AccountFile, _refusal(PRIVACY_FILE, "be a guarantee"))
    refusal = _refusal(RELEASES_FILE, "be the releases of a run")
    table = untrusted.table_of(copy.content(RELEASES_FILE), refusal, TableForm.by_size(RELEASE_SCHEMA))
    releases = releases_from_table(table)
    with refusal.covers():
        rounds = _rounds(releases, _counted(releases, manifest.settings, account.events))
        plan = PrivacyPlan(
            unit=PrivacyUnit(account.unit), epsilon=0.0, delta=0.0, discretization_slack=0.0, rounds=rounds
        )
        same = alike(describe(plan), account.events)
    if not same:
        raise _refusal(PRIVACY_FILE, "list the mechanisms of releases.parquet").because("others")
    _check_spent(account, manifest, rounds)
    return account


def _check_spent(account: AccountFile, manifest: VerifiedManifest, rounds: tuple[RoundPlan, ...]) -> None:
    """Refuses an epsilon that the rounds don't add up to, or that exceeds what the job asked for."""
    asked = manifest.settings.privacy  # type: ignore[union-attr]
    spent = accounting.spent_epsilon(rounds, asked.epsilon, account.delta)
    if not math.isclose(spent, account.epsilon, rel_tol=_NEARLY):
        raise _refusal(PRIVACY_FILE, f"state the composed epsilon {spent:.9g}").because(f"{account.epsilon:.9g}")
    if account.epsilon > asked.epsilon or (account.delta, account.unit) != (asked.delta, asked.unit):
        raise _refusal(PRIVACY_FILE, "keep what the settings of run.json ask for").because("another guarantee")


def _counted(releases: Sequence[Release], asked: AskedFit, events: Sequence[dict[str, Any]]) -> list[float]:
    """Noise multipliers used in the account; for split noise, at most those released."""
    result = [release.plan.noise_multiplier for release in releases]
    if asked.noised_twice:
        return [each / math.sqrt(2.0) for each in result]
    if not asked.noise_is_split:
        return result
    stated = [float(event["noise_multiplier"]) for event in events]
    return [min(pair) for pair in zip(result, stated, strict=True)]


def _rounds(releases: Sequence[Release], multipliers: Sequence[float]) -> tuple[RoundPlan, ...]:
    """Groups releases, in order, into rounds of a plan with these noise multipliers."""
    plans = (
        (release.path.rpartition("/")[0], dataclasses.replace(release.plan, noise_multiplier=multiplier))
        for release, multiplier in zip(releases, multipliers, strict=True)
    )
    grouped = itertools.groupby(plans, key=lambda each: each[0])
    return tuple(RoundPlan(path=path, releases=tuple(plan for _, plan in group)) for path, group in grouped)


def _check_ledger(copy: RunCopy, path: str, account: AccountFile | None) -> None:
    manifest = copy.manifest
    try:
        entries = Ledger(path).entries()
    except LedgerRefusedError as error:
        raise ProtocolError(str(error)) from error
    refusal = _refusal(MANIFEST, "be of a run that the ledger holds as committed")
    check_published(entries, manifest, digest_of(copy.raw), refusal)
    charge = run_states(entries)[manifest.run_id].charge
    if account is not None and (charge.epsilon, charge.delta) != (account.epsilon, account.delta):
        raise _refusal(PRIVACY_FILE, "state what the ledger has charged").because("another guarantee")


def _sign(copy: RunCopy, key: str) -> str:
    """Signs an unaltered run; returns the public key."""
    path = copy.path(SIGNATURE_FILE)
    if STORE.exists(path):
        raise ConfigError(f"the run is already signed: {path}; remove the signature first.")
    raw = signed(copy.raw, key)
    write_bytes(path, raw)
    return check(copy.raw, raw, None)


def _check_signature(copy: RunCopy, key: str | None) -> str | None:
    """Returns the public key of the signature; None without one."""
    path = copy.path(SIGNATURE_FILE)
    if key is None and not STORE.exists(path):
        return None
    _check_no_link(copy.folder, SIGNATURE_FILE)
    raw = untrusted.read_bytes(path, _refusal(SIGNATURE_FILE, "be there where --key asks for it"))
    return check(copy.raw, raw, key)


def _check_no_link(folder: str, name: str) -> None:
    """Refuses a local file that is a link or inside a linked folder."""
    if not is_local(folder):
        return
    path = folder.removeprefix("file://")
    for part in name.split("/"):
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise _refusal(name, "be a file of its own").because("a link")


def _names(folder: str) -> Iterator[str]:
    """Yields the files below a folder, including links, named as in the manifest."""
    if not is_local(folder):
        for file in STORE.list(f"{folder}/"):
            yield file.path[len(folder) :].lstrip("/")
        return
    top = folder.removeprefix("file://")
    for place, folders, files in os.walk(top):
        linked = [name for name in folders if stat.S_ISLNK(os.lstat(os.path.join(place, name)).st_mode)]
        for name in sorted([*files, *linked]):
            yield os.path.relpath(os.path.join(place, name), top)


def _refusal(name: str, rule: str) -> Refusal:
    """The refusal of a file that breaks a rule."""
    return Refusal(kind=ProtocolError, rule=f"{name} must {rule}", remedy=_REMEDY)


def _words(summary: dict[str, Any]) -> str:
    account = "not recomputed: the job is no private fit"
    if summary["epsilon"] is not None:
        account = f"epsilon {summary['epsilon']:.6g} at delta {summary['delta']:g}, recomposed from releases.parquet"
    signer = "none, so nothing shows who wrote run.json"
    if summary["signed_by"] is not None:
        known = "" if summary["key_known"] else ", but not compared with a key of yours: give --key"
        signer = f"signed by {summary['signed_by']}{known}"
    ledger = "its entry is that of the run" if summary["ledger"] else "not checked: give --ledger"
    compare = "not compared: give --inputs, a job with ledger and key_uri"
    lines = [
        f"Run {summary['run_id']}: {summary['files']} files have the digests that run.json lists.",
        f"Account: {account}.",
        f"Ledger: {ledger}.",
        f"Input: {'still that of the run' if summary['inputs'] else compare}.",
        f"Signature: {signer}.",
    ]
    return "\n".join(lines) + "\n"


class _Signature(NumberedFile):
    algorithm: Annotated[str, Field(pattern="^Ed25519$")]
    public_key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


def signed(manifest: bytes, key_path: str) -> bytes:
    """Content of `signature.json` for a manifest; raises ConfigError if the key is invalid."""
    key = _private_key(key_path)
    found = {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(_LABEL + hashlib.sha256(manifest).digest()).hex(),
    }
    return json.dumps(with_number(found), indent=2, sort_keys=True).encode()


def check(manifest: bytes, signature: bytes, public_path: str | None) -> str:
    """Verifies the signature of a manifest.

    Args:
      manifest: bytes of `run.json`.
      signature: bytes of `signature.json`.
      public_path: path of the public key (PEM) that must have signed. None accepts the key in the signature, which only
        reveals accidental changes.

    Returns:
      The public key, 64 hex digits.

    Raises:
      ProtocolError: if the signature is invalid, or of another key or manifest.
      ConfigError: if the public key file is invalid.
    """
    rule = f"{SIGNATURE_FILE} must be a signature of {_RUN}"
    refusal = Refusal(kind=ProtocolError, rule=rule, remedy="ask the signer of the run for another copy")
    content = json_schema.parse_as(signature, _Signature, refusal, _MOST_BYTES)
    if public_path is not None and _public_key(public_path).public_bytes_raw().hex() != content.public_key:
        raise refusal.because("one by another key")
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(content.public_key))
    try:
        key.verify(bytes.fromhex(content.signature), _LABEL + hashlib.sha256(manifest).digest())
    except InvalidSignature as error:
        raise refusal.because("one of another file") from error
    return content.public_key


def _private_key(path: str) -> Ed25519PrivateKey:
    refusal = Refusal(
        kind=ConfigError,
        rule="--sign must be an Ed25519 private key in PEM without a password",
        remedy="make one with `openssl genpkey -algorithm ed25519`",
    )
    with refusal.covers():
        key = serialization.load_pem_private_key(untrusted.read_bytes(path, refusal, _MOST_BYTES), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise refusal.because("a key of another kind")
    return key


def _public_key(path: str) -> Ed25519PublicKey:
    refusal = Refusal(
        kind=ConfigError,
        rule="--key must be an Ed25519 public key in PEM",
        remedy="get it with `openssl pkey -in PRIVATE -pubout`",
    )
    with refusal.covers():
        key = serialization.load_pem_public_key(untrusted.read_bytes(path, refusal, _MOST_BYTES))
    if not isinstance(key, Ed25519PublicKey):
        raise refusal.because("a key of another kind")
    return key


def _check_inputs(run_id: str, job: str) -> None:
    """Reads all input of a job again and compares it with the run's record in the ledger.

    A run only records an HMAC of its input under its own key. So the comparison needs the kept key, the ledger and the
    data, and reveals only whether the input is the same.

    Args:
      run_id: id of the run.
      job: path of the job file, with `ledger` and the kept `key_uri`.

    Raises:
      ConfigError: if the job file is invalid or belongs to another run.
      ProtocolError: if the input has changed.
    """
    from dapple_dp.pipelines.kmeans.fit import JOB
    from dapple_dp.pipelines.kmeans.plan.fingerprint import content_fingerprint, settings_digest
    from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
    from dapple_dp.pipelines.run.options import beam_options, read_text
    from dapple_dp.pipelines.run.run_keys import RunNonce

    beam = beam_options([])
    config: FitConfig = JOB.resolve(JOB.load(read_text(job)))
    status = _status(config, run_id)
    key = RunNonce(run=run_id, raw=bytes.fromhex(status.reserved["nonce"])).place(str(config.key_uri))
    started = status.started or {}
    if (settings_digest(config), key_digest(key)) != (status.reserved["config"], started["key"]["key_uri"]):
        raise ConfigError(f"--inputs must name the job of run {run_id}, got another job or key; give the one that ran.")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        try:
            found = content_fingerprint(plan_files(config), settings_digest(config), key, beam, folder)
        except InputError as error:
            raise ProtocolError(f"the input of run {run_id} could not be read: {error}") from error
    if found != started["input"]:
        raise ProtocolError(
            f"the input has changed since run {run_id}: files were changed, added or removed, so its release is of "
            "data that are no longer there."
        )


def _status(config: FitConfig, run_id: str) -> RunStatus:
    """Status of the run in the ledger; raises ConfigError if it can't be compared."""
    if config.ledger is None or config.key_uri is None:
        missing = "no ledger" if config.ledger is None else "no key"
        raise ConfigError(
            f"--inputs must name a job with ledger and key_uri, got {missing}; without a kept key the input can't be "
            "compared, because its digests depend on that key."
        )
    status = Ledger(config.ledger).status(run_id)
    if status is None or status.started is None:
        raise ConfigError(f"run {run_id} is not in this ledger; name its own ledger.")
    return status
