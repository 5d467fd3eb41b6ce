"""`algorithm: auto`: a fixed rule that chooses the algorithm from public settings, and never from private rows.

docs/start/which-protocol.md describes the rule and the measurements behind it.
"""

import math
from collections.abc import Mapping
from typing import Any

import pydantic

from dapple_dp.schemas.choices import Algorithm, ClippingCenter, ClippingRule, LloydStart
from dapple_dp.schemas.core.plan import Allocation, PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig
from dapple_dp.schemas.kmeans.sections.clipping_config import CLIPPING_NORMS
from dapple_dp.schemas.kmeans.tree_config import TreeConfig
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import is_number, python_scalar

LLOYD_STEPS = 1
"""Default Lloyd rounds after FedDP-Init."""
MOST_GRID_FEATURES = 3
"""Largest number of features for which DP-Lloyd starts from a grid over the domain; above, from candidates."""
MOST_GRID_CLUSTERS = 3
"""Largest number of clusters of rows for which a grid start isn't known to leave one without a center."""
DP_LLOYD_STEPS = 2
"""Default Lloyd rounds of DP-Lloyd, if the number of rows isn't public."""
_ANYWHERE: dict[str, Any] = {"domain": (-1.0, 1.0)}
_SOME_RADIUS: dict[str, Any] = {"radius": 1.0}


def chosen(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with the algorithm chosen by the rule, without sections that this algorithm doesn't read.

    Args:
      settings: settings of a job, as plain data; `algorithm` is ignored.

    Raises:
      ConfigError: one sentence, if nothing public bounds the rows, or if a section that isn't read is wrong.
    """
    rest = {name: value for name, value in settings.items() if name not in ("dp_lloyd", "tree", "clipping")}
    bounds, tree, clipping = (section_of(settings, name) for name in ("dp_lloyd", "tree", "clipping"))
    _check_unread(bounds, tree)
    radius = _radius(bounds, tree, clipping)
    served = settings.get("server_data") not in (None, "none")
    if served and ("domain" not in bounds or tree.get("center") is not None or _needs_server(settings, clipping)):
        return _from_server(rest, clipping)
    if radius is not None and (_needs_tree(settings) or tree.get("center") is not None):
        return rest | {"algorithm": Algorithm.CENTRAL_TREE, "tree": tree | {"radius": radius}, "clipping": clipping}
    if "domain" not in bounds and radius is None:
        return _from_private_norm(rest, clipping)
    if _takes_candidates(settings, bounds):
        bounds = bounds | {"init": LloydStart.CANDIDATES}
    elif "steps" not in bounds and _of_section(settings, "data", "public_rows") is None:
        bounds = bounds | {"steps": DP_LLOYD_STEPS}
    return rest | {"algorithm": Algorithm.DP_LLOYD} | _bounded(bounds, clipping, radius, _n_features(settings))


def _needs_server(settings: Mapping[str, Any], clipping: Mapping[str, Any]) -> bool:
    """Returns whether only FedDP-KMeans fits the settings; otherwise server rows join the candidates in the box."""
    norm, center = (python_scalar(clipping.get(name)) for name in ("norm", "center"))
    in_box = norm in (None, ClippingRule.DOMAIN) or is_number(norm, *CLIPPING_NORMS)
    its_own = settings.get("feddp_kmeans") or settings.get("preset") or clipping.get("bounds")
    its_own = its_own or _of_section(settings, "privacy", "shares") is not None
    paper = _of_section(settings, "privacy", "allocation") not in (None, Allocation.TUNED)
    in_box = in_box and center in (None, ClippingCenter.NONE)
    return bool(its_own) or paper or not in_box or _needs_tree(settings)


def _takes_candidates(settings: Mapping[str, Any], bounds: Mapping[str, Any]) -> bool:
    """Returns whether DP-Lloyd starts from candidates: unless the job disagrees, or has few features or clusters.

    Server rows can only be used as candidates. For clients, few clusters are no reason for a grid, since a client's
    bounds fall with its number of rows in any case.
    """
    n_features, n_clusters = _n_features(settings), python_scalar(settings.get("n_clusters"))
    by_client = _of_section(settings, "privacy", "unit") == PrivacyUnit.CLIENT
    few = n_features is not None and n_features <= MOST_GRID_FEATURES
    few = few or (is_number(n_clusters, 1, MOST_GRID_CLUSTERS) and not by_client)
    given = bounds.get("init") is not None
    warm = settings.get("recurring") is not None
    served = settings.get("server_data") not in (None, "none")
    return not (given or warm) and (served or not few)


def _from_server(rest: dict[str, Any], clipping: dict[str, Any]) -> dict[str, Any]:
    """Returns the job for FedDP-KMeans from public rows; these also bound the private ones by default."""
    if clipping.get("norm") in (None, ClippingRule.DOMAIN):
        clipping = clipping | {"norm": ClippingRule.SERVER_RADIUS}
    lloyd = rest.get("lloyd") or {"steps": LLOYD_STEPS}
    return rest | {"algorithm": Algorithm.FEDDP_KMEANS, "clipping": clipping, "lloyd": lloyd}


def _from_private_norm(rest: dict[str, Any], clipping: dict[str, Any]) -> dict[str, Any]:
    """Returns the job for FedDP-KMeans in a ball of private radius; refused unless `clipping.norm` asks for one."""
    if clipping.get("norm") in (None, ClippingRule.DOMAIN):
        raise ConfigError(
            "algorithm auto needs a bound on the rows; give server_data, dp_lloyd.domain, tree.radius, or a number "
            "or private as clipping.norm."
        )
    clipping = {"center": ClippingCenter.NONE} | clipping
    return rest | {"algorithm": Algorithm.FEDDP_KMEANS, "clipping": clipping}


def _bounded(
    bounds: dict[str, Any], clipping: dict[str, Any], radius: float | None, n_features: int | None
) -> dict[str, Any]:
    """Returns the sections of DP-Lloyd: in its box or a ball around the origin, whichever is smaller.

    Args:
      bounds: section of DP-Lloyd; without a domain if only the radius is public.
      clipping: as the job gives it.
      radius: radius of the ball, feature units; None without one.
      n_features: None if unknown before data are read.
    """
    domain = bounds.get("domain")
    in_box = domain is not None and n_features is not None and _half_diagonal(domain, n_features) <= (radius or 0.0)
    if radius is None or in_box:
        return {"dp_lloyd": bounds, "clipping": clipping}
    clipping = {"center": ClippingCenter.NONE} | clipping | {"norm": radius}
    return {"dp_lloyd": bounds | {"domain": [-radius, radius]}, "clipping": clipping}


def _half_diagonal(domain: Any, n_features: int) -> float:
    """Returns half the diagonal of a box, in feature units; its interval or intervals have been validated."""
    pairs = list(domain.values() if isinstance(domain, Mapping) else domain)
    sides = pairs if isinstance(pairs[0], list | tuple) else [pairs] * n_features
    return 0.5 * math.hypot(*(float(high) - float(low) for low, high in sides))


def _n_features(settings: Mapping[str, Any]) -> int | None:
    """Returns the number of features, missing indicators included; None if the settings don't determine it."""
    features = _of_section(settings, "data", "features")
    if not isinstance(features, list | tuple) or settings.get("encode"):
        return None
    missing = _of_section(settings, "data", "missing") or {}
    return len(features) + sum(bool(_of_section(missing, column, "indicator")) for column in missing)


def _of_section(settings: Mapping[str, Any], section: str, name: str) -> Any:
    """Returns a setting of a section; None without it."""
    given = settings.get(section)
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _radius(bounds: Mapping[str, Any], tree: Mapping[str, Any], clipping: Mapping[str, Any]) -> float | None:
    """Returns the public radius of a ball around the origin; with a domain, a clipping norm is around its middle."""
    if "radius" in tree:
        return float(tree["radius"])
    norm = python_scalar(clipping.get("norm"))
    given = "domain" not in bounds and is_number(norm, *CLIPPING_NORMS)
    return float(norm) if given else None  # type: ignore[arg-type]


def _needs_tree(settings: Mapping[str, Any]) -> bool:
    """Returns whether the job uses settings that DP-Lloyd doesn't have."""
    lloyd = settings.get("lloyd")
    steps = lloyd.get("steps") if isinstance(lloyd, Mapping) else getattr(lloyd, "steps", None)
    counted = is_number(python_scalar(settings.get("n_clusters")), 1, math.inf)
    return bool(steps) or settings.get("quality") is not None or not counted


def section_of(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a section as plain data, without defaults."""
    given = settings.get(name)
    if isinstance(given, pydantic.BaseModel):
        return given.model_dump(exclude_unset=True)
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"{name} must be a section of settings, got {rejection.quote(given)}; leave it out.")
    return dict(given or {})


def _check_unread(bounds: dict[str, Any], tree: dict[str, Any]) -> None:
    """Validates both sections, even if the algorithm won't read them; they may leave their bound to the other one."""
    if bounds:
        rejection.check_config(DPLloydConfig, _ANYWHERE | bounds, "dp_lloyd")
    if tree:
        rejection.check_config(TreeConfig, _SOME_RADIUS | tree, "tree")
