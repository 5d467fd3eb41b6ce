"""Parties of masked aggregation by name, and the public keys by which their files are told from those of others."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from schemas.errors import ConfigError
from schemas.settings import rejection
from schemas.settings.section import Text

AGGREGATOR = "aggregator"
COLLECTOR = "collector"
"""Who opens the run and its rounds; with pairwise masks shares are sealed to it."""
OFFICES = (AGGREGATOR, COLLECTOR)
"""Parties that are no clients."""
_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def _check_key(key: str) -> str:
    """Takes what `dapple party new` prints."""
    if not _KEY.fullmatch(key):
        raise rejection.broken_rule("64 hex digits, as `dapple party new` prints them")
    return key


def _check_list(parties: dict[str, str]) -> dict[str, str]:
    """Takes both offices and at least one client, each with a key of its own."""
    missing = next((each for each in OFFICES if each not in parties), None)
    if missing is not None or len(parties) <= len(OFFICES):
        raise rejection.broken_rule("the keys of aggregator, collector and clients", f"none of {missing or 'a client'}")
    odd = next((name for name in parties if not _NAME.fullmatch(name)), None)
    if odd is not None:
        raise rejection.broken_rule("called by letters, digits, '-', '_' and '.'", repr(odd))
    owners: dict[str, str] = {}
    for name, key in parties.items():
        if (other := owners.setdefault(key, name)) != name:
            raise rejection.broken_rule("a key of its own for each party", f"one key for {other} and {name}")
    return parties


PartyKeys = Annotated[dict[Text, Annotated[Text, AfterValidator(_check_key)]], AfterValidator(_check_list)]


def check_identity(
    parties: Mapping[str, str] | None, identity_uri: str | None, others: Mapping[str, str | None], within: str = ""
) -> None:
    """Checks that a job names its own key where it lists those of all parties.

    Args:
      parties: public keys by name; None for files that nobody signs.
      identity_uri: the place of the own private key.
      others: places of other keys of the job, by setting.
      within: dotted name of the section, with its dot.

    Raises:
      ConfigError: if one is there without the other, or two keys lie in one place.
    """
    if (parties is None) != (identity_uri is None):
        raise ConfigError(
            f"{within}parties and {within}identity_uri must be given together, got one of them; make a key by "
            "`dapple party new`, and list its public part."
        )
    for setting, place in others.items():
        if identity_uri is not None and place == identity_uri:
            raise ConfigError(
                f"{within}identity_uri must be another place than {setting}, got the same; make a key by "
                "`dapple party new`."
            )
