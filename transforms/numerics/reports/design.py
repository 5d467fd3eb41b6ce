"""Computes the public parameters of a collection of reports from its job."""

import math

from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.reports.parameters import (
    MOST_LEVELS,
    ReportGuarantee,
    ReportMode,
    ReportParameters,
    ReportVariant,
)
from dapple_dp.transforms.numerics.reports.amplification import local_epsilon_for
from dapple_dp.transforms.numerics.reports.mechanism import MOST_EPSILON, bit_choices, codeword_choice, codeword_moments
from dapple_dp.transforms.numerics.reports.published_protocol import HISTOGRAM_SHARE
from dapple_dp.transforms.numerics.reports.sums import LIFTED

_MORE_LEVELS = 3
_MANY_FEATURES = 8
"""Features below which centers are not nearly orthogonal, and hyperplanes cut clusters."""
_MORE_LEAVES = 2
"""Additional levels if they cost nothing: four centers of a hundred share a leaf of 2**(log2 k + 5), on average."""
_STRONG_SIGNAL = 4.0


def design(
    config: EncodeConfig, features: tuple[str, ...], key: bytes, encoding: str | None = None
) -> ReportParameters:
    """Returns the public parameters of a new collection.

    Args:
      config: the job.
      features: names, in the order of the coordinates.
      key: 16 public random bytes.
      encoding: of columns as features, or None.

    Raises:
      ConfigError: if the budget can't be spent this way.
    """
    guarantee = _guarantee(config)
    variant, epsilon = _variant(config, len(features)), guarantee.local_epsilon
    if variant is ReportVariant.PAPER:
        choices = bit_choices(epsilon, HISTOGRAM_SHARE)
    else:
        choices = ((codeword_choice(epsilon), epsilon),)
    parameters = ReportParameters(
        variant=variant,
        n_clusters=config.n_clusters,
        features=features,
        radius=config.tree.radius,
        depth=0,
        key=key,
        guarantee=guarantee,
        choices=choices,
        encoding=encoding,
    )
    return parameters.with_depth(_depth(config, parameters))


def _guarantee(config: EncodeConfig) -> ReportGuarantee:
    """Returns the guarantee of the job."""
    privacy, reports = config.privacy, config.reports
    shuffled = reports.mode is ReportMode.SHUFFLE and privacy.delta is not None
    delta = float(privacy.delta or 0.0) if shuffled else 0.0
    local = privacy.epsilon
    if shuffled:
        local = local_epsilon_for(privacy.epsilon, delta, reports.min_batch, MOST_EPSILON, codeword_choice)
    return ReportGuarantee(
        mode=reports.mode, local_epsilon=local, epsilon=privacy.epsilon, delta=delta, min_batch=reports.min_batch
    )


def _variant(config: EncodeConfig, n_features: int) -> ReportVariant:
    """Returns the given variant; by default `leaves` in mode local with many features, where it measured better."""
    reports = config.reports
    if reports.variant is not None:
        return reports.variant
    many = n_features >= _MANY_FEATURES and reports.mode is ReportMode.LOCAL
    return ReportVariant.LEAVES if many else ReportVariant.NESTED


def _depth(config: EncodeConfig, parameters: ReportParameters) -> int:
    """Returns the levels of the tree: none if reports have none, else as given or by the expected signal.

    Source: Chang et al. (2021), Appendix D, for ceil(log2 k) + 3 levels; three more keep more pairs of centers apart
    and cost a third more noise, which pays off if there is little noise.
    """
    if parameters.variant is ReportVariant.POINTS or config.reports.mode is ReportMode.SHUFFLE:
        return 0
    if isinstance(config.tree.depth, int):
        return config.tree.depth
    depth = math.ceil(math.log2(parameters.n_clusters)) + 3 if parameters.n_clusters > 1 else 1
    if parameters.variant is ReportVariant.PAPER:
        return min(depth, MOST_LEVELS)
    if parameters.variant is ReportVariant.LEAVES:
        return min(depth + _MORE_LEAVES, MOST_LEVELS)
    mean = codeword_moments(parameters.choices[-1][0]).mean
    noise = (1.0 + depth / 3.0) * (parameters.n_features + LIFTED) * parameters.n_clusters**2
    strong = parameters.guarantee.min_batch * mean**2 / noise > _STRONG_SIGNAL
    return min(depth + _MORE_LEVELS if strong else depth, MOST_LEVELS)
