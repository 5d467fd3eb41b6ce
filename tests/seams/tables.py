"""All tables, by the name of their job, with where their rows lie and who tells the story of one."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.seams import federations, fits, parties, reports, streams
from tests.seams.array import Row, Table
from tests.seams.fit_story import Story
from tests.seams.party_story import PartyStory
from tests.seams.places import Place
from tests.seams.stream_story import StreamStory
from tests.seams.streams import Days


class Told(NamedTuple):
    """A table, the class of its place, and what becomes of a row."""

    table: Table
    place: type[Place]
    tell: Callable[[Row, Any, pathlib.Path], None]


def _fit(row: Row, place: Place, folder: pathlib.Path) -> None:
    Story(row, place, folder).tell()


def _stream(row: Row, place: Days, folder: pathlib.Path) -> None:
    StreamStory(row, place, folder).tell()


def _roles(row: Row, _place: Place, folder: pathlib.Path) -> None:
    PartyStory(row, folder).tell()


def _reports(row: Row, _place: Place, folder: pathlib.Path) -> None:
    reports.ReportStory(row, folder).tell()


def _federation(row: Row, _place: Place, folder: pathlib.Path) -> None:
    federations.FederationStory(row, folder).tell()


TABLES = {
    "fit": Told(fits.TABLE, Place, _fit),
    "stream": Told(streams.TABLE, Days, _stream),
    "roles": Told(parties.TABLE, Place, _roles),
    "reports": Told(reports.TABLE, Place, _reports),
    "clustered_fl": Told(federations.TABLE, Place, _federation),
}
