"""Options of algorithm central_tree."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from schemas import rejection
from schemas.choices import TreeDepth, TreeDirections
from schemas.section import Section, python_scalar

AUTO_DEPTH = 20
"""Half-spaces that divide the data, if the job does not say how many."""
_RADII = (1e-60, 1e60)


def is_radius(value: object) -> bool:
    """Whether it is a number that may be a clipping norm."""
    return isinstance(value, int | float) and not isinstance(value, bool) and _RADII[0] <= value <= _RADII[1]


def _radius(value: object) -> object:
    """A radius as a float."""
    value = python_scalar(value)
    if not is_radius(value):
        raise rejection.broken_rule("a number from 1e-60 to 1e60")
    return float(value)  # type: ignore[arg-type]


def _depth(value: object) -> object:
    """`auto` or an integer from 1 to 60."""
    value = python_scalar(value)
    if value == TreeDepth.AUTO:
        return TreeDepth.AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 60:
        raise rejection.broken_rule("'auto' or an integer from 1 to 60")
    return value


class TreeConfig(Section):
    """The tree over the data, and the ball that bounds a row."""

    radius: Annotated[float, BeforeValidator(_radius)] = Field(
        description="the public radius of the ball to which rows are clipped, a number > 0 in feature units"
    )
    depth: Annotated[TreeDepth | int, BeforeValidator(_depth)] = Field(
        default=TreeDepth.AUTO,
        description=f"the number of half-spaces that divide the data, an integer from 1 to 60, or auto ({AUTO_DEPTH})",
    )
    directions: TreeDirections = Field(
        default=TreeDirections.SUBSPACE,
        description="subspace for half-spaces in a noisy principal subspace, or random for normals drawn at random",
    )

    @property
    def n_levels(self) -> int:
        """Number of half-spaces."""
        return AUTO_DEPTH if isinstance(self.depth, TreeDepth) else self.depth
