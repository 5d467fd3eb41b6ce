"""`dapple verify --inputs`: whether the input of a job is still that of the run.

What a run knows of its input is an HMAC under its own key. So only who has the kept key, the ledger and the data can
compare, and nobody learns more than whether they are the same.
"""

import os
import tempfile

from dapple_dp.pipelines.kmeans.fit import JOB
from dapple_dp.pipelines.kmeans.plan.fingerprint import content_fingerprint, settings_digest
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_fit
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run.options import beam_options, read_text
from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.schemas.errors import ConfigError, InputError, ProtocolError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.ledger_entry import RunStatus
from dapple_dp.transforms.privacy.key_files import key_digest


def check_inputs(run_id: str, job: str) -> None:
    """Reads all input of a job once more and compares it with what the ledger holds of a run.

    Args:
      run_id: of the run.
      job: path of the job's file, with `ledger` and the kept `key_uri`.

    Raises:
      ConfigError: if it is no such job, or another one than that of the run.
      ProtocolError: if the input is another one now.
    """
    config: FitConfig = JOB.resolve(JOB.load(read_text(job)))
    status = _status(config, run_id)
    key = RunNonce(run=run_id, raw=bytes.fromhex(status.reserved["nonce"])).place(str(config.key_uri))
    started = status.started or {}
    if (settings_digest(config), key_digest(key)) != (status.reserved["config"], started["key"]["key_uri"]):
        raise ConfigError(f"--inputs must name the job of run {run_id}, got another job or key; give the one that ran.")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        try:
            found = content_fingerprint(plan_fit(config), settings_digest(config), key, beam_options([]), folder)
        except InputError as error:
            raise ProtocolError(
                f"the input must be that of run {run_id}, got none that can be read: {error}"
            ) from error
    if found != started["input"]:
        raise ProtocolError(
            f"the input must be that of run {run_id}, got another one; files were changed, added or removed since it "
            "ran, so its release is of data that are no longer there."
        )


def _status(config: FitConfig, run_id: str) -> RunStatus:
    """What the ledger says of the run; raises ConfigError where it does not say enough."""
    if config.ledger is None or config.key_uri is None:
        missing = "no ledger" if config.ledger is None else "no key"
        raise ConfigError(
            f"--inputs must name a job with ledger and key_uri, got {missing};"
            " without a kept key nobody can compare the input, since all that was known of it was under that key."
        )
    status = Ledger(config.ledger).status(run_id)
    if status is None or status.started is None:
        raise ConfigError(f"the ledger must hold run {run_id}, got none that has begun there; name its own ledger.")
    return status
