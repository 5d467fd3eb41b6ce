"""All tables, by name, with where their rows are, who plays one, and which settings no factor varies."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pytest

from tests.seams import federations, fits, model_uses, parties, pooled, prepares, reports, streams, sweeps, topics
from tests.seams.array import Factor, Row, Table
from tests.seams.federations import FederationStory
from tests.seams.fit_story import Story
from tests.seams.model_uses import Models, ModelStory
from tests.seams.party_story import PartyStory
from tests.seams.places import Place
from tests.seams.pooled import PooledStory
from tests.seams.prepares import PrepareStory
from tests.seams.reports import ReportStory
from tests.seams.stream_story import StreamStory
from tests.seams.streams import Days
from tests.seams.sweeps import SweepStory
from tests.seams.topics import Topics, TopicStory


class RowTold(Protocol):
    """Purpose of a row."""

    def tell(self) -> None:
        """Returns what a user does with it, which ends well."""

    def be_refused(self, refusal: str) -> None:
        """A row that holds what is excluded is refused in a sentence."""


class Told(NamedTuple):
    """A table.

    Attributes:
      table: of factors.
      place: the class of where its rows are.
      story: of one row, a place and a new folder.
      jobs: whose settings it varies.
      unvaried: a reason for each setting of them, or section of settings, that no factor varies.
      others: factors of other tables that vary them, too.
    """

    table: Table
    place: type[Place]
    story: Callable[[Row, Any, pathlib.Path], RowTold]
    jobs: Sequence[str]
    unvaried: Mapping[str, str] = {}
    others: Sequence[Factor] = ()


TABLES = {
    "fit": Told(fits.TABLE, Place, Story, ["fit"], fits.UNVARIED, pooled.FACTORS),
    "pooled": Told(pooled.TABLE, Place, PooledStory, []),
    "sweep": Told(sweeps.TABLE, Place, SweepStory, ["sweep"]),
    "prepare": Told(prepares.TABLE, Place, PrepareStory, ["prepare"], fits.UNVARIED, (*fits.FACTORS, *pooled.FACTORS)),
    "stream": Told(streams.TABLE, Days, StreamStory, ["stream"], others=topics.OWN),
    "roles": Told(parties.TABLE, Place, PartyStory, ["upload", "unmask", "aggregate"], parties.UNVARIED, fits.FACTORS),
    "reports": Told(reports.TABLE, Place, ReportStory, ["encode", "shuffle", "decode"], reports.UNVARIED),
    "models": Told(model_uses.TABLE, Models, ModelStory, ["assign", "evaluate", "profile"], model_uses.UNVARIED),
    "clustered_fl": Told(federations.TABLE, Place, FederationStory, ["clustered_fl"], federations.UNVARIED),
}
ON_DEMAND = {"kafka": Told(topics.TABLE, Topics, TopicStory, [])}
"""Tables that need what not every machine has; they run where they are named, and fail without it."""


def tiers(rows: Sequence[Row], few: Sequence[int], *before: str, only: Sequence[int] | None = None) -> list[Any]:
    """Parameters of a test for the numbers of all rows: a few are slow, all others nightly.

    Args:
      rows: of a table.
      few: numbers of those that run on every submission.
      before: values of the parameters before the number, which the name of a test shows, too.
      only: numbers of those that run at all; None for all.
    """
    return [
        pytest.param(
            *before,
            index,
            id="-".join((*before, str(index))),
            marks=pytest.mark.slow if index in few else pytest.mark.nightly,
        )
        for index in (range(len(rows)) if only is None else only)
    ]
