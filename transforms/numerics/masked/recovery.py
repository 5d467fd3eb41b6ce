"""Secrets put together from shares that neighbors hand out, wrong ones among them left out."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ProtocolError
from transforms.numerics.masked import shamir

Answers = list[tuple[int, NDArray[np.int64]]]
"""Holders' numbers, and the share of each; shares are taken at number + 1."""


def recovered(
    answers: Mapping[int, Answers], threshold: int, is_secret: Callable[[bytes, int], bool]
) -> dict[int, bytes]:
    """Secrets by owner, 32 octets each.

    Args:
      answers: by owner, sorted by holder.
      threshold: shares that give a secret back.
      is_secret: whether octets are the secret of an owner.

    Raises:
      ProtocolError: if an owner has too few shares, or no shares next to each other give its secret.
    """
    if any(len(each) < threshold for each in answers.values()):
        raise ProtocolError(
            f"at least {threshold} neighbors of every client must hand out shares, got fewer; wait for more of them."
        )
    if not answers:
        return {}
    found = _combined([each[:threshold] for each in answers.values()])
    secrets = dict(zip(answers, found, strict=False))
    wrong = [owner for owner in answers if owner not in secrets or not is_secret(secrets[owner], owner)]
    return secrets | {owner: _secret(answers[owner], threshold, owner, is_secret) for owner in wrong}


def is_residues(share: NDArray[np.int64]) -> bool:
    """Whether numbers can be a share."""
    return share.shape == (shamir.N_LIMBS,) and bool(((share >= 0) & (share < shamir.PRIME)).all())


def _combined(chosen: list[Answers]) -> list[bytes]:
    """Secrets from shares of as many owners; none if those of any do not fit together."""
    points = np.array([[holder + 1 for holder, _ in answers] for answers in chosen])
    try:
        secrets = shamir.combine(points, np.array([[share for _, share in answers] for answers in chosen]))
    except ValueError:
        return []
    return [secret.tobytes() for secret in secrets]


def _secret(answers: Answers, threshold: int, owner: int, is_secret: Callable[[bytes, int], bool]) -> bytes:
    """The secret of an owner from the first of its shares that fit together, a wrong one among them left out.

    Raises:
      ProtocolError: if no shares next to each other give the secret that its owner has shared.
    """
    for first in range(len(answers)):
        chosen = [answers[(first + step) % len(answers)] for step in range(threshold)]
        for secret in _combined([chosen]):
            if is_secret(secret, owner):
                return secret
    raise ProtocolError(
        "shares that clients hand out must be those that they were sent, got others; their masks stay, open a new run."
    )
