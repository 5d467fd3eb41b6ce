"""Checks of clients' settings for masked aggregation, alone and against those of other clients."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.masked.config import OFFICES
from dapple_dp.schemas.settings.digest import content_of
from dapple_dp.transforms.files.stores import is_local

_LOCAL = (
    "data.path",
    "data.table",
    "data.partitions",
    "data.csv",
    "server_data.path",
    "recurring.previous",
    "masked.secret_uri",
    "masked.state_uri",
    "masked.identity_uri",
    "key_uri",
    "prepare",
    "keep_staging",
)
"""Settings in which clients of one run may differ, or could in earlier versions."""


def check_settings(config: FitConfig, exchange: str, released: str, client: str) -> None:
    """Refuses settings that a client of masked aggregation can't run separately.

    Args:
      config: the job.
      exchange: folder of the run.
      released: folder of the releases so far.
      client: name of the client that sends; empty for the unmasking party.

    Raises:
      ConfigError: like `check_job`, or if others can read the secret.
    """
    check_job(config, client)
    _check_places(config, exchange, released)


def check_job(config: FitConfig, client: str) -> None:
    """Refuses settings that no client can run, in any folder; reads nothing.

    Args:
      config: the job.
      client: name of the client that sends; empty for the unmasking party.

    Raises:
      ConfigError: if the job isn't masked aggregation with a stored secret, has a setting of another role, or no party
        has the client's name.
    """
    check_keys(config)
    if config.masked.shares is not None and config.masked.parties is None:
        raise ConfigError(
            "masked.noise_by clients needs masked.parties in jobs of their own; without signatures, anyone who can "
            "write to --exchange could send shares, so run `dapple masked party new`."
        )
    if config.ledger is not None:
        raise ConfigError(
            f"ledger must be left out for this job, got {config.ledger}; the aggregator charges the run, by the ledger "
            "in its own job."
        )
    _check_listed(config, client)


def check_keys(config: FitConfig) -> None:
    """Refuses settings without the places of the party's secret and state.

    Raises:
      ConfigError: if one is missing, or the job isn't masked aggregation.
    """
    if config.trust is not Trust.MASKED:
        raise ConfigError(f"trust must be masked for this job, got {config.trust}; run the job fit.")
    if config.masked.secret_uri is None:
        raise ConfigError(
            "this job needs masked.secret_uri: the place of the secret that all clients share, or with scheme "
            "pairwise of this client's own."
        )
    if config.masked.state_uri is None:
        raise ConfigError(
            "this job needs masked.state_uri: a folder where this party keeps what it has answered. Set it, and run "
            "`dapple masked party enroll`."
        )


def shared_settings(config: FitConfig) -> dict[str, Any]:
    """Returns the settings that all clients must share, as JSON."""
    shared = content_of(config)
    for name in _LOCAL:
        section, _, key = name.rpartition(".")
        part = shared.get(section) if section else shared
        if isinstance(part, dict):
            part.pop(key, None)
    return shared


def shared_content(planned: PlannedFit) -> dict[str, Any]:
    """Returns the settings that all clients share, and the digest of the server data."""
    return shared_settings(planned.config) | {
        "server_digest": None if planned.server is None else planned.server.digest
    }


def shared_bytes(planned: PlannedFit) -> bytes:
    """Serializes `shared_content` for its digest."""
    return json.dumps(shared_content(planned), sort_keys=True, allow_nan=False).encode()


def shared_digest(planned: PlannedFit) -> str:
    """SHA-256 of `shared_bytes`."""
    return hashlib.sha256(shared_bytes(planned)).hexdigest()


def differing(one: Mapping[str, Any], other: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yields the dotted names of the settings that differ, sorted.

    Args:
      one: settings as JSON.
      other: settings to compare with.
      within: dotted name of the section, with a trailing dot.
    """
    for name in sorted(one.keys() | other.keys()):
        first, second = one.get(name), other.get(name)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from differing(first, second, f"{within}{name}.")
        elif name not in one or name not in other or first != second:
            yield f"{within}{name}"


def _check_places(config: FitConfig, exchange: str, released: str) -> None:
    """Refuses a secret or state in a folder that others can read."""
    own = {name: getattr(config.masked, name) for name in ("secret_uri", "state_uri", "identity_uri")}
    for flag, folder in (("--exchange", exchange), ("--released", released)):
        for name, place in own.items():
            if place is not None and _is_inside(place, folder):
                raise ConfigError(
                    f"masked.{name} must be outside of {flag}, which others can read, got {place}; move it."
                )


def _check_listed(config: FitConfig, client: str) -> None:
    """Refuses a sender whose name isn't that of a client in `masked.parties`."""
    parties = config.masked.parties
    if client and parties is not None and (client in OFFICES or client not in parties):
        raise ConfigError(f"--client must be a client that masked.parties list, got {client}; name one of them.")


def _is_inside(path: str, folder: str) -> bool:
    """Returns whether a path is a folder or inside it, regardless of spelling."""
    if is_local(path) and is_local(folder):
        path, folder = os.path.realpath(path), os.path.realpath(folder)
    return f"{path.rstrip('/')}/".startswith(folder.rstrip("/") + "/")
