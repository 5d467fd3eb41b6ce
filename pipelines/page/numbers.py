"""Number formats of a page: no more digits than are meaningful, with aligned decimal points."""

import decimal
import math
from collections.abc import Sequence

_FIGURE, _POINT = "\N{FIGURE SPACE}", "\N{PUNCTUATION SPACE}"
_PLAIN = 1e-4, 1e9
"""Numbers outside this range have an exponent."""


def fixed(values: Sequence[float], digits: int = 4) -> tuple[str, ...]:
    """Formats values with the same number of decimals, which gives the largest one `digits` digits.

    Args:
      values: finite values of one kind, in one unit.
      digits: at least 1.
    """
    largest = max(map(abs, values), default=0.0)
    if largest and not _PLAIN[0] <= largest < _PLAIN[1]:
        return tuple(f"{value:.{digits - 1}e}" if value else "0" for value in values)
    whole = math.floor(math.log10(largest)) + 1 if largest else 1
    decimals = max(0, digits - max(whole, 1))
    return tuple(_unsigned_zero(f"{value:,.{decimals}f}") for value in values)


def at_most(bound: float, digits: int = 3) -> str:
    """Formats a bound with some digits, rounded up so that it remains a bound.

    Args:
      bound: >= 0, finite.
      digits: at least 1.
    """
    # Twelve digits first, so that the float64 error of 0.0001 doesn't round it up to 0.000101.
    rounded = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).create_decimal(f"{bound:.12g}")
    return f"{float(rounded):,.12g}"


def to_noise(value: float, stddev: float) -> str:
    """Formats a noisy number without the decimals lost in its noise; keeps two digits of the noise."""
    if not stddev > 0.0:
        return f"{value:,.4g}"
    if not _PLAIN[0] <= max(abs(value), stddev) < _PLAIN[1]:
        return f"{value:.3g}"
    decimals = min(max(0, 1 - math.floor(math.log10(2.0 * stddev))), 6)
    return _unsigned_zero(f"{value:,.{decimals}f}")


def on_points(texts: Sequence[str]) -> tuple[str, ...]:
    """Pads the texts of a right-aligned column so that their decimal points are aligned."""
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
    """Removes the sign of a number that was rounded to zero."""
    return text.lstrip("-") if not text.strip("-0.,") else text
