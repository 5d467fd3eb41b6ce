"""Number of clusters, given or chosen by the run."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from dapple_dp.schemas.choices import ClusterRule
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Section, python_scalar

MOST_CLUSTERS = 10_000
"""Upper limit: more would take hours on the server after the budget is spent, for clusters below their noise."""


class ClusterChoice(Section):
    """Section for a number of clusters that the run chooses, at no further privacy cost."""

    max: Annotated[int, Field(strict=True, ge=2, le=MOST_CLUSTERS)] = Field(
        description=f"the largest number of centers, an integer from 2 to {MOST_CLUSTERS}"
    )
    choose: ClusterRule = Field(description="elbow: where the cost of the weighted server points stops falling fast")


def _cluster_count(value: object) -> object:
    """Validates an integer from 1 to `MOST_CLUSTERS`, or a section with `max` and `choose`."""
    value = python_scalar(value)
    if isinstance(value, ClusterChoice):
        return value
    if isinstance(value, Mapping):
        return _cluster_choice(dict(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise rejection.broken_rule("an integer")
    if value < 1:
        raise rejection.broken_rule("at least 1")
    if value > MOST_CLUSTERS:
        raise rejection.broken_rule(f"at most {MOST_CLUSTERS}")
    return value


def _cluster_choice(section: dict[object, object]) -> ClusterChoice:
    """Validates the section and returns it as a `ClusterChoice`."""
    most, rule = python_scalar(section.get("max")), section.get("choose")
    if set(section) != {"max", "choose"} or rule not in set(ClusterRule):
        raise rejection.broken_rule("an integer, or a section of max and choose: elbow")
    if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= MOST_CLUSTERS:
        raise rejection.broken_rule(f"a section whose max is an integer from 2 to {MOST_CLUSTERS}")
    return ClusterChoice(max=most, choose=ClusterRule(str(rule)))


ClusterCount = Annotated[int | ClusterChoice, BeforeValidator(_cluster_count)]
