"""Numbers as a page shows them: no more digits than they are worth, and points below points."""

import decimal
import math
from collections.abc import Sequence

_FIGURE, _POINT = "\N{FIGURE SPACE}", "\N{PUNCTUATION SPACE}"
_PLAIN = 1e-4, 1e9
"""Numbers of other sizes are written with an exponent."""


def fixed(values: Sequence[float], digits: int = 4) -> tuple[str, ...]:
    """Values with equally many decimals, as many as give the largest of them `digits` digits.

    Args:
      values: of one kind, in one unit; finite.
      digits: at least 1.
    """
    largest = max(map(abs, values), default=0.0)
    if largest and not _PLAIN[0] <= largest < _PLAIN[1]:
        return tuple(f"{value:.{digits - 1}e}" if value else "0" for value in values)
    whole = math.floor(math.log10(largest)) + 1 if largest else 1
    decimals = max(0, digits - max(whole, 1))
    return tuple(_unsigned_zero(f"{value:,.{decimals}f}") for value in values)


def at_most(bound: float, digits: int = 3) -> str:
    """A bound with some digits, rounded up, so that what is said to be at most this is.

    Args:
      bound: >= 0, finite.
      digits: at least 1.
    """
    # Twelve digits first: what float64 adds to 0.0001 is no reason to say 0.000101.
    rounded = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).create_decimal(f"{bound:.12g}")
    return f"{float(rounded):,.12g}"


def to_noise(value: float, stddev: float) -> str:
    """A noisy number without the decimals that its noise has drowned; two digits of the noise would still show."""
    if not stddev > 0.0:
        return f"{value:,.4g}"
    if not _PLAIN[0] <= max(abs(value), stddev) < _PLAIN[1]:
        return f"{value:.3g}"
    decimals = min(max(0, 1 - math.floor(math.log10(2.0 * stddev))), 6)
    return _unsigned_zero(f"{value:,.{decimals}f}")


def on_points(texts: Sequence[str]) -> tuple[str, ...]:
    """Texts of one column that is set flush right, filled with blanks so that their decimal points lie in line."""
    tails = [text.rpartition(".")[2] if ("." in text and _is_number(text)) else None for text in texts]
    most = max((len(tail) for tail in tails if tail is not None), default=0)
    blanks = [most + 1 if tail is None else most - len(tail) for tail in tails]
    if not most:
        return tuple(texts)
    return tuple(
        text + (_POINT + _FIGURE * (n - 1) if tail is None else _FIGURE * n) if _is_number(text) else text
        for text, tail, n in zip(texts, tails, blanks, strict=True)
    )


def _is_number(text: str) -> bool:
    return text.replace(",", "").lstrip("-").replace(".", "", 1).isdigit()


def _unsigned_zero(text: str) -> str:
    """A zero that lost its digits loses its sign, too."""
    return text.lstrip("-") if not text.strip("-0.,") else text
