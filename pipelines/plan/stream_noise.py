"""What `dapple plan` says of a stream: noise of what its centers remember, beside that of a memory alone."""

from typing import Any

from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.core.unit import unit_of
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.transforms.kmeans.windows.rounds import column_of
from dapple_dp.transforms.numerics.kmeans.recurring.windows import remembered_noise


def stream_json(config: WindowsFit) -> dict[str, Any]:
    """Relative noise of remembered counts, for noise of stddev 1 for a sensitivity of 1 and one unit a window.

    A memory alone pays for every window in which a unit comes, with independent noise. Habits of units are two: to come
    in every window, and to come exactly where the contract lets them count.

    Args:
      config: a window of the epoch.
    """
    epoch, length = config.epoch, config.recurring.memory
    windows, times = epoch.windows, epoch.times
    share = unit_of(config.privacy.unit).share(min(1.0 / epoch.separation, times / windows))
    own = remembered_noise(config.weights, column_of(config), length, windows) / share

    def alone(counted: int, part: float) -> float:
        return remembered_noise((1,), (1,) * counted, length, windows) / part

    habits = {"as the contract allows": {"stream": own, "memory alone": alone(times, share)}}
    by_client = config.privacy.unit is PrivacyUnit.CLIENT
    if by_client:
        habits = {"in every window": {"stream": own, "memory alone": alone(windows, 1.0)}} | habits
    return {
        "windows": windows,
        "counted": times,
        "apart": epoch.separation if by_client else None,
        "band": epoch.band,
        "reach": len(config.weights),
        "noise": habits,
    }


def stream_warnings(found: dict[str, Any]) -> list[str]:
    """Where a memory alone would have less noise, or a shorter band would."""
    warnings = []
    for habit, noise in found["noise"].items():
        if noise["memory alone"] < noise["stream"]:
            warnings.append(
                f"for clients that come {habit}, a fit with recurring.memory {found['windows']} times has less noise "
                f"at the same epsilon: {noise['memory alone']:.3g} against {noise['stream']:.3g}, and counts all of "
                "them"
            )
    if found["apart"] is not None and found["apart"] < found["reach"] and found["counted"] > 1:
        warnings.append(
            f"stream.band {found['band']} is above stream.min_separation {found['apart']}, so that windows of a client "
            "meet in one release and noise pays for their sum: try a band that is not above it"
        )
    return warnings
