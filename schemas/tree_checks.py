"""What algorithm central_tree asks of the other sections of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from schemas.choices import Algorithm, Allocation, ClippingCenter, FedDPStart
from schemas.errors import ConfigError
from schemas.section import python_scalar
from schemas.tree_config import is_radius

if TYPE_CHECKING:
    from schemas.config import FitConfig


def with_tree_start(data: object) -> object:
    """Plain data of a job; FedDP-Lloyds that start with the tree are algorithm central_tree with Lloyd rounds."""
    if not isinstance(data, Mapping) or data.get("algorithm") != Algorithm.FEDDP_KMEANS:
        return data
    options = data.get("feddp_kmeans")
    start = options.get("init") if isinstance(options, Mapping) else getattr(options, "init", None)
    return {**data, "algorithm": Algorithm.CENTRAL_TREE.value} if start == FedDPStart.CENTRAL_TREE else data


def with_tree_clipping(data: object) -> object:
    """Plain data of a job whose clipping norm and center are the ball of the tree, unless it says otherwise.

    A radius that is wrong or missing is refused where it belongs, so any norm will do then.
    """
    if not isinstance(data, Mapping) or data.get("algorithm") != Algorithm.CENTRAL_TREE:
        return data
    clipping, tree = data.get("clipping", {}), data.get("tree")
    if not isinstance(clipping, Mapping):
        return data
    radius = python_scalar(tree.get("radius")) if isinstance(tree, Mapping) else None
    by_tree = {"norm": radius if is_radius(radius) else 1.0, "center": ClippingCenter.NONE.value}
    return {**data, "clipping": {**by_tree, **clipping}}


def check_central_tree(config: FitConfig) -> None:
    """Refuses a `tree` section without its algorithm, and settings that the algorithm does not have.

    Raises:
      ConfigError: in one sentence.
    """
    if config.algorithm is not Algorithm.CENTRAL_TREE:
        if config.tree is not None:
            raise ConfigError(
                f"tree must be left out for algorithm {config.algorithm}, got a section; use algorithm central_tree."
            )
        return
    if config.tree is None:
        raise ConfigError("tree must be given for algorithm central_tree, got nothing; give a section with radius.")
    if config.clipping.norm != config.tree.radius:
        raise ConfigError(
            f"clipping.norm must be tree.radius for algorithm central_tree, got {config.clipping.norm} and "
            f"{config.tree.radius}; leave clipping.norm out."
        )
    if config.privacy.allocation is not Allocation.TUNED or config.privacy.shares is not None:
        raise ConfigError(
            "privacy must hold no more than unit, epsilon and delta for algorithm central_tree, got an allocation or "
            "shares; leave them out: the algorithm splits its budget itself."
        )
