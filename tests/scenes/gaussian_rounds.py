"""Plans of rounds whose releases are Gaussian, for tests of what the checker demands."""

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan


def round_of(**sensitivities: int) -> RoundPlan:
    """Ten numbers for each release, by its sensitivity; one called scatter is symmetric."""
    releases = []
    for name, sensitivity in sensitivities.items():
        spec = ReleaseSpec(
            name=name,
            shape=(10,),
            mechanism=Mechanism.DISCRETE_GAUSSIAN,
            sensitivity=sensitivity,
            share=1.0,
            geometry=Geometry.SYMMETRIC if name == "scatter" else Geometry.VECTOR,
        )
        releases.append(ReleasePlan(spec=spec, noise_multiplier=1.0))
    return RoundPlan(path="test", releases=tuple(releases))
