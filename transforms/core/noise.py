"""Exact sampling of discrete Gaussian and discrete Laplace noise; the only code that draws the noise of releases.

Guarantee: if ChaCha20 and BLAKE2b under a secret key cannot be distinguished from random functions, a release is the
exact sum plus noise of exactly the stated law: no modulo bias, no truncated tail, no floating-point error. Float64
only speeds up decisions. A decision that rounding could change is made in exact arithmetic on further random bits, so
the noise is also the same on every CPU. Running time depends on the noise; it is not part of a release.

Retries: the same key, path, plan and exact sum give the same noise, so a bundle that runs twice releases once. If any
of them differs (a sum even by one unit in one coordinate of the round), the noise is independent, so no two releases
can be subtracted to cancel it. The digest of the sum that binds them is never output.

Source: Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy", Algorithms 1 to 3.
"""

import decimal
import hashlib
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.transforms.core.keystream import Integers, KeyStream, encode_label, first_accepted

MIN_RELEASE_SCALE = float(1 << 10)
"""Smallest Gaussian stddev or Laplace scale of a released coordinate, lattice units."""
SCALE_LIMIT = float(1 << 44)
"""Noise below this scale, in lattice units, fits int64 unless 2**19 coins of probability 1/e show heads in a row."""

_LAPLACE_RATE = 0.63
_GAUSSIAN_RATE = 0.75
_RELATIVE_MARGIN = 2.0**-40
_ABSOLUTE_MARGIN = 2.0**-62
_WORD_BITS = 64


def draw_release(key: bytes, round_plan: RoundPlan, exact_sum: NDArray[np.int64]) -> tuple[Release, ...]:
    """Adds the planned noise to a round's exact sum.

    Sums are added in the ring Z_2^64 and wrap silently: reduction modulo 2**64 of (sum + noise) is
    post-processing of the integer release, so it costs no privacy, whereas a check would show the noise.

    Args:
      key: 32 secret bytes.
      round_plan: path, laws and shapes; public.
      exact_sum: int64, shape (round_plan.size,), lattice units; the round's releases concatenated in order.

    Returns:
      The round's releases, in order.

    Raises:
      ValueError: if the key is not 32 bytes, `exact_sum` has another dtype or shape, or `check_release_noise`
        refuses a release. No message contains a value of the sum.
    """
    check_sum(round_plan, exact_sum)
    for plan in round_plan.releases:
        check_release_noise(plan)
    digest = hashlib.sha256(exact_sum.astype("<i8").tobytes()).digest()
    noisy = exact_sum.copy()
    start = 0
    for plan in round_plan.releases:
        path = f"{round_plan.path}/{plan.spec.name}"
        stream = KeyStream(key, _release_label(path, start, plan, digest))
        stop = start + plan.spec.size
        noisy[start:stop].view(np.uint64)[:] += planned_noise(stream, plan).view(np.uint64)
        start = stop
    return releases_of(round_plan, noisy)


def releases_of(round_plan: RoundPlan, noised: NDArray[np.int64]) -> tuple[Release, ...]:
    """Splits the noised values of a round, int64 of shape (round_plan.size,), into its releases."""
    check_sum(round_plan, noised)
    ends = np.cumsum([plan.spec.size for plan in round_plan.releases])
    parts = np.split(noised, ends[:-1])
    return tuple(
        Release(path=f"{round_plan.path}/{plan.spec.name}", plan=plan, values=part.reshape(plan.spec.shape))
        for plan, part in zip(round_plan.releases, parts, strict=True)
    )


def check_release_noise(plan: ReleasePlan) -> None:
    """Refuses a release that this module would not draw.

    Raises:
      ValueError: if the Gaussian stddev (off the diagonal too) or the Laplace scale of a coordinate is below
        2**10 or beyond 2**44 lattice units, if a SYMMETRIC release is not a Gaussian one of triangular size, or if
        mechanism or geometry is text: it equals a member of its enumeration, and would be drawn as another one.
    """
    spec, scale = plan.spec, plan.noise_scale
    if not spec.is_enumerated:
        raise ValueError(f"{spec.name} must have a Mechanism and a Geometry, got text; use the enumerations.")
    if spec.geometry is Geometry.SYMMETRIC:
        if spec.mechanism is not Mechanism.DISCRETE_GAUSSIAN:
            raise ValueError(f"a symmetric release must be Gaussian, got {spec.mechanism}; use vector geometry.")
        if not _diagonal(spec.size).all():
            scale = _off_diagonal_stddev(scale)
    if not scale >= MIN_RELEASE_SCALE:
        raise ValueError(
            f"the noise of {spec.name} must be at least 2**10 lattice units in every coordinate, got {scale:.6g}; "
            "use a finer lattice or a smaller share of the budget."
        )
    if not plan.noise_scale < SCALE_LIMIT:
        raise ValueError(
            f"the noise of {spec.name} must be below 2**44 lattice units, got {plan.noise_scale:.6g}; "
            "use a coarser lattice or a larger share of the budget."
        )


def discrete_laplace(stream: KeyStream, scale: int, size: int) -> NDArray[np.int64]:
    """Draws integers z with probability proportional to exp(-|z| / scale), exactly.

    Args:
      stream: random bits, read from its current position.
      scale: in [1, 2**44]; ValueError otherwise.
      size: length of the result.

    Source: Canonne, Kamath, Steinke (2020), Algorithm 2 with s = 1.
    """
    if not 1 <= scale <= SCALE_LIMIT:
        raise ValueError(f"scale must be an integer in [1, 2**44], got {scale}; choose another lattice.")

    def accepted(trials: int) -> Integers:
        candidates = stream.residues(scale, trials)
        kept = bernoulli_exp(stream, candidates / scale, lambda i: Fraction(int(candidates[i]), scale))
        remainders = candidates[kept]
        magnitudes = remainders + scale * _geometric(stream, len(remainders))
        negative = stream.bits(len(magnitudes))
        # Zero has one sign: drawing it twice would double its probability.
        return np.where(negative, -magnitudes, magnitudes)[~negative | (magnitudes > 0)]

    return first_accepted(accepted, _LAPLACE_RATE, size)


def discrete_gaussian(stream: KeyStream, stddev: float, size: int) -> NDArray[np.int64]:
    """Draws integers z with probability proportional to exp(-z**2 / (2 stddev**2)), exactly.

    Args:
      stream: random bits, read from its current position.
      stddev: in (0, 2**44), ValueError otherwise; taken as the rational number that the float64 is. (The stddev of
        the draws agrees with it to many digits from about 1 on.)
      size: length of the result.

    Source: Canonne, Kamath, Steinke (2020), Algorithm 3.
    """
    if not 0.0 < stddev < SCALE_LIMIT:
        raise ValueError(f"stddev must be in (0, 2**44), got {stddev}; choose another lattice.")
    scale = math.floor(stddev) + 1
    exact_variance = Fraction(stddev) ** 2

    def accepted(trials: int) -> Integers:
        proposals = discrete_laplace(stream, scale, trials)
        with np.errstate(over="ignore"):
            exponents = 0.5 * ((np.abs(proposals) - stddev * stddev / scale) / stddev) ** 2
        return proposals[bernoulli_exp(stream, exponents, lambda i: exact_exponent(int(proposals[i])))]

    def exact_exponent(proposal: int) -> Fraction:
        return (abs(proposal) - exact_variance / scale) ** 2 / (2 * exact_variance)

    return first_accepted(accepted, _GAUSSIAN_RATE, size)


def bernoulli_exp(
    stream: KeyStream, exponents: NDArray[np.float64], exact_exponent: Callable[[int], Fraction]
) -> NDArray[np.bool_]:
    """Flips coins that are true with probability exp(-x), exactly: "a uniform real u in [0, 1) lies below exp(-x)".

    The first 64 bits of u are the stream's next word; u is decided against float64's exp(-x) where rounding
    cannot matter and in exact arithmetic elsewhere. The further bits come from a substream named by the word's
    position, so what is read from `stream` never depends on how the CPU rounds.

    Error analysis. Let p be float64's exp(-x) and q the exact value.
      x <= 64: each operation has relative error at most 2**-53. Laplace: x = U/t < 1 has error below 2**-52.
        Gaussian: a = |Y|, b = stddev**2 / t <= stddev, z = (a - b) / stddev; a/stddev <= |z| + 1 gives z an
        error below 2**-51 (|z| + 2), and x = z**2 / 2 one below 2**-50 (z**2 + 2|z|) < 2**-42. exp adds a
        relative error below 2**-44 (a thousandfold what math libraries show). So |p - q| <= 2**-41 q.
      x > 64: p and q are below 2**-92, also if x or p left float64's range.
      Underflow in b (stddev < 2**-500) moves z, then at most 2**-500, by less than that.
      u is within 2**-64 + 2**-53 u of its float64. So the sign of u - p is right wherever |u - p| exceeds
      2**-40 p + 2**-62; a coin is undecided with probability below 2**-38.

    Args:
      stream: random bits, one word per coin.
      exponents: shape (n,), x rounded as above, >= 0.
      exact_exponent: index of a coin -> its x.
    """
    start = stream.position
    words = stream.uint64(len(exponents))
    probabilities = np.exp(-exponents)
    excess = words * 2.0**-_WORD_BITS - probabilities
    outcomes = excess < 0.0
    undecided = np.abs(excess) <= probabilities * _RELATIVE_MARGIN + _ABSOLUTE_MARGIN
    for index in undecided.nonzero()[0].tolist():
        tail = stream.substream(encode_label("undecided", start + index))
        outcomes[index] = _decide_exactly(int(words[index]), exact_exponent(index), tail)
    return outcomes


def _decide_exactly(word: int, exponent: Fraction, tail: KeyStream) -> bool:
    """Returns whether the uniform real with the bits of `word`, then `tail`, lies below exp(-exponent)."""
    prefix, bits = word, _WORD_BITS
    while True:
        lower, upper = _exp_bounds(exponent, bits)
        if prefix + 1 <= lower:
            return True
        if prefix >= upper:
            return False
        prefix = (prefix << _WORD_BITS) | int(tail.uint64(1)[0])
        bits += _WORD_BITS


def _exp_bounds(exponent: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Returns bounds on 2**bits * exp(-exponent), less than 2**-30 apart unless exp(-exponent) < 2**-bits."""
    if exponent > bits:
        return Fraction(0), Fraction(1)
    with decimal.localcontext(decimal.Context(prec=bits // 3 + 20, rounding=decimal.ROUND_FLOOR)) as context:
        exponent_low = decimal.Decimal(exponent.numerator) / exponent.denominator
        context.rounding = decimal.ROUND_CEILING
        exponent_high = decimal.Decimal(exponent.numerator) / exponent.denominator
        # Decimal.exp is correctly rounded to nearest, so the next number outward is a bound.
        lower = (-exponent_high).exp().next_minus()
        upper = (-exponent_low).exp().next_plus()
    return Fraction(lower) * (1 << bits), min(Fraction(upper), Fraction(1)) * (1 << bits)


def _geometric(stream: KeyStream, size: int) -> NDArray[np.int64]:
    """Counts heads before the first tail of coins with probability exp(-1), shape (size,)."""
    counts = np.zeros(size, dtype=np.int64)
    active = np.arange(size)
    while active.size:
        active = active[bernoulli_exp(stream, np.ones(active.size), lambda _: Fraction(1))]
        counts[active] += 1
    return counts


def planned_noise(stream: KeyStream, plan: ReleasePlan) -> NDArray[np.int64]:
    """Draws the noise of one release, shape (plan.spec.size,), from the start of a stream of its own."""
    size = plan.spec.size
    if plan.spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return discrete_laplace(stream, int(plan.noise_scale), size)
    if plan.spec.geometry is Geometry.VECTOR:
        return discrete_gaussian(stream, plan.noise_scale, size)
    diagonal = _diagonal(size)
    on_diagonal = int(diagonal.sum())
    noise = np.empty(size, dtype=np.int64)
    noise[diagonal] = discrete_gaussian(stream.substream(encode_label("diagonal")), plan.noise_scale, on_diagonal)
    noise[~diagonal] = discrete_gaussian(
        stream.substream(encode_label("off_diagonal")), _off_diagonal_stddev(plan.noise_scale), size - on_diagonal
    )
    return noise


def _off_diagonal_stddev(noise_scale: float) -> float:
    return math.nextafter(noise_scale * math.sqrt(0.5), math.inf)


def _diagonal(size: int) -> NDArray[np.bool_]:
    """Marks the diagonal entries of an upper triangle, listed row by row; refuses sizes that are no triangle."""
    order = (math.isqrt(8 * size + 1) - 1) // 2
    if order * (order + 1) // 2 != size:
        raise ValueError(f"a symmetric release must have d * (d + 1) / 2 coordinates, got {size}; use vector geometry.")
    rows, columns = np.triu_indices(order)
    return rows == columns


def _release_label(path: str, start: int, plan: ReleasePlan, digest: bytes) -> bytes:
    spec = plan.spec
    law = (str(spec.mechanism), float(plan.noise_scale), str(spec.geometry))
    return encode_label("release", path, start, *law, encode_label(*spec.shape), digest)


def check_sum(round_plan: RoundPlan, exact_sum: NDArray[np.int64]) -> None:
    """Raises ValueError, without a value of the sum, unless it has the type and length of its round."""
    if exact_sum.dtype != np.int64 or exact_sum.shape != (round_plan.size,):
        raise ValueError(
            f"exact_sum of {round_plan.path} must be int64 of shape ({round_plan.size},), got {exact_sum.dtype} of "
            f"shape {exact_sum.shape}; concatenate the round's statistics in the plan's order."
        )
