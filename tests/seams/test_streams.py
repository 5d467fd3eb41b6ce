"""Pairs of everything that a stream may be asked: plan, windows, pages and the ledger agree."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.scenes import lake
from tests.seams import streams
from tests.seams.array import Excluded
from tests.seams.settings import unknown_settings
from tests.seams.stream_story import StreamStory
from tests.seams.streams import Days

ROWS = streams.TABLE.rows()
UNVARIED = {"stream.kafka": "needs a broker"}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Days]:
    """Rows by day in every form; keys are those of runs, as users have them."""
    with lake.keys_of_runs():
        yield Days(tmp_path_factory.mktemp("days"))


@pytest.mark.parametrize("index", range(len(ROWS)), ids=str)
def test_an_epoch_is_planned_released_and_verified(index: int, place: Days, tmp_path: pathlib.Path) -> None:
    StreamStory(ROWS[index], place, tmp_path / "story").tell()


def test_an_epoch_that_the_budget_does_not_cover_is_refused(place: Days, tmp_path: pathlib.Path) -> None:
    StreamStory(ROWS[0], place, tmp_path / "story").lack_budget()


@pytest.mark.parametrize("rule", [each for each in streams.EXCLUDED if each.refusal], ids=str)
def test_what_a_stream_cannot_have_is_refused_in_its_own_words(
    rule: Excluded, place: Days, tmp_path: pathlib.Path
) -> None:
    for index, row in enumerate(streams.TABLE.only_excluded_by(rule)):
        StreamStory(row, place, tmp_path / str(index)).be_refused(str(rule.refusal))


def test_every_setting_of_a_stream_is_in_the_table() -> None:
    assert unknown_settings("stream", streams.FACTORS, UNVARIED) == set()
