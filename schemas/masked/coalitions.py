"""Guarantees of masked aggregation against each party and coalition, as listed in `privacy.json`.

Source: the words are those of Diaa, Humphries, Kerschbaum (2025), "FastLloyd", Theorem 5.2.
"""

from typing import Any

from dapple_dp.schemas.choices import MaskScheme, NoiseBy
from dapple_dp.schemas.masked.config import MaskedConfig

_ENSURED = "(epsilon, delta)-IND-CDP-MPC in the presence of a semi-honest, polynomial time adversary who controls "
_NOTHING = "nothing is promised against an adversary who controls "


def coalitions(masked: MaskedConfig) -> list[dict[str, Any]]:
    """Returns one row per party or coalition: its members, whether epsilon and delta hold against it, and a sentence.

    Args:
      masked: settings of the run.
    """
    listed = {
        NoiseBy.AGGREGATOR: _by_the_aggregator,
        NoiseBy.BOTH: _by_both,
        NoiseBy.CLIENTS: _by_clients,
    }[masked.noise_by](masked)
    return [{"parties": who, "holds": holds, "words": _words(who, holds)} for who, holds in listed]


def _words(who: str, holds: bool) -> str:
    return (_ENSURED if holds else _NOTHING) + who


def _by_the_aggregator(masked: MaskedConfig) -> list[tuple[str, bool]]:
    return [
        ("one reader of the releases", True),
        *_of_clients(masked, "one client"),
        ("the aggregator, who sees no release", True),
        ("the aggregator and a reader of the releases", False),
        ("the aggregator and a client", False),
    ]


def _by_both(masked: MaskedConfig) -> list[tuple[str, bool]]:
    return [
        ("one reader of the releases", True),
        ("the aggregator and readers of the releases", True),
        *_of_clients(masked, "clients and readers of the releases"),
        ("the aggregator and " + ("a client" if _one_secret(masked) else "the collector"), False),
    ]


def _by_clients(masked: MaskedConfig) -> list[tuple[str, bool]]:
    if _one_secret(masked):
        return [
            ("the aggregator and all readers of the releases", True),
            ("one client, who knows its own noise shares", False),
            ("the aggregator and a client, who can make every mask", False),
        ]
    part = f"at most {masked.corrupt:g} of the listed senders"
    return [
        ("the aggregator, the collector and all readers of the releases", True),
        (f"the aggregator, the collector, all readers of the releases and {part}", True),
        (f"more than {masked.corrupt:g} of the listed senders", False),
    ]


def _of_clients(masked: MaskedConfig, who: str) -> list[tuple[str, bool]]:
    """Returns the rows on clients; with a shared secret, every client can compute the tag of a guessed message."""
    if not _one_secret(masked):
        return [(who, True)]
    guess = "whose tags show whether a guess of another client's whole message is right"
    return [(f"{who}, without the list of those present", True), (f"{who}, with that list, {guess}", False)]


def _one_secret(masked: MaskedConfig) -> bool:
    return masked.scheme is MaskScheme.SHARED_SECRET
