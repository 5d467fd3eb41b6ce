"""Jobs of algorithm central_tree."""

from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic
from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import Algorithm, Auto, ClippingCenter
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.any_fit import AnyFit
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Section, auto_or_integer, is_number, number_from, python_scalar

AUTO_DEPTH = 20
"""Default number of half-spaces that divide the data."""
_RADII = (1e-60, 1e60)


def _center(value: object) -> object:
    """Validates a center: finite numbers, at least one."""
    if value is None:
        return None
    numbers = [python_scalar(number) for number in value] if isinstance(value, list | tuple) else []
    if not numbers or not all(is_number(number, -_RADII[1], _RADII[1]) for number in numbers):
        raise rejection.broken_rule(f"a list of numbers from {-_RADII[1]:g} to {_RADII[1]:g}".replace("+", ""))
    return tuple(float(number) for number in numbers)  # type: ignore[arg-type]


class TreeConfig(Section):
    """The tree over the data, and the ball that bounds rows."""

    radius: Annotated[float, number_from(*_RADII)] = Field(
        description="the public radius of the ball to which rows are clipped, a number > 0 in feature units"
    )
    depth: Annotated[Auto | int, auto_or_integer(60)] = Field(
        default=Auto.AUTO,
        description=f"the number of half-spaces that divide the data, an integer from 1 to 60, or auto ({AUTO_DEPTH})",
    )
    center: Annotated[tuple[float, ...] | None, BeforeValidator(_center)] = Field(
        default=None,
        description="the public center of the ball, a list of one number for each feature in feature units, or "
        "leave it out for the origin",
    )

    @property
    def n_levels(self) -> int:
        """Number of half-spaces."""
        return AUTO_DEPTH if isinstance(self.depth, Auto) else self.depth


class CentralTreeFit(AnyFit):
    """One `fit` job of algorithm central_tree."""

    algorithm: Literal[Algorithm.CENTRAL_TREE] = Field(description="central_tree")
    tree: TreeConfig = Field(description="a section with radius for algorithm central_tree")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _ball_bounds_rows(cls, data: object) -> object:
        """Takes clipping norm and center from the ball of the tree, unless the job gives them.

        A wrong or missing radius is reported as an error of `tree.radius`, so any norm will do until then.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("clipping", {}), Mapping):
            return data
        tree = data.get("tree")
        radius = python_scalar(tree.get("radius")) if isinstance(tree, Mapping) else None
        by_tree = {"norm": radius if is_number(radius, *_RADII) else 1.0, "center": ClippingCenter.NONE.value}
        return {**data, "clipping": {**by_tree, **data.get("clipping", {})}}

    def _check_algorithm(self) -> None:
        if self.clipping.norm != self.tree.radius:
            raise ConfigError(
                f"clipping.norm must equal tree.radius for algorithm central_tree, got {self.clipping.norm} and "
                f"{self.tree.radius}; leave clipping.norm out."
            )
        if self.tree.center is not None and self.clipping.center is not ClippingCenter.NONE:
            raise ConfigError(
                f"clipping.center must be none with a tree.center, got {str(self.clipping.center)!r}; leave one of "
                "them out."
            )
        self._check_fixed_split("the algorithm splits its budget itself")
