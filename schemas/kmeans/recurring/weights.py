"""How many windows a release of an epoch adds up, and by which weights: reader, protocol, account and roll ask here.

Source: Fichtenberger, Henzinger, Upadhyay (2022), "Constant matters: Fine-grained complexity of differentially private
continual observation", for the square root of the matrix of prefix sums; here with decay, rounded and banded.
"""

COEFFICIENT_BITS = 4
"""The weight of a window's own statistic is 2**COEFFICIENT_BITS; finer weights gain less than a hundredth."""


def coefficients(band: int, length: int) -> tuple[int, ...]:
    """Weight of the statistic of each age in a release, the window's own first.

    Args:
      band: how many windows a release adds up, >= 1.
      length: of the memory that is to have little noise, in windows, >= 2.

    Returns:
      Positive integers, descending, at most `band`: those that are rounded to zero are left out.

    Example:
      >>> coefficients(4, 30)
      (16, 8, 6, 5)
    """
    found, factor, decay = [], 1.0, 1.0 - 1.0 / length
    for age in range(band):
        factor *= (2 * age - 1) / (2 * age) if age else 1.0
        found.append(round(2**COEFFICIENT_BITS * factor * decay**age))
    return tuple(weight for weight in found if weight)
