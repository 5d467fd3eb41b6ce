"""Pairs of settings that may meet: files, pages, plan and words agree. Rows of fits have a file of their own."""

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.scenes import lake
from tests.scenes.conformance import needed
from tests.seams.array import Excluded
from tests.seams.party_story import PartyStory
from tests.seams.places import Place
from tests.seams.settings import unknown_settings
from tests.seams.stream_story import StreamStory
from tests.seams.tables import ON_DEMAND, TABLES, tiers

ALL = TABLES | ON_DEMAND
ROWS = {name: told.table.rows() for name, told in ALL.items() if name != "fit"}
EACH = [each for name in TABLES if name != "fit" for each in tiers(ROWS[name], ALL[name].table.few(), name)]
TOPICS = tiers(ROWS["kafka"], (), "kafka")
RULES = [
    pytest.param(name, rule, id=f"{name} {rule}")
    for name, told in TABLES.items()
    for rule in told.table.excluded
    if rule.refusal
]
JOBS = [pytest.param(name, job, id=job) for name, told in TABLES.items() for job in told.jobs]
Placed = Callable[[str], Place]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    """Returns where the rows of a table are; keys are those of runs, as users have them."""
    places: dict[str, Place] = {}

    def of(name: str) -> Place:
        if name not in places:
            places[name] = ALL[name].place(tmp_path_factory.mktemp(name))
        return places[name]

    with lake.keys_of_runs():
        yield of
    for each in places.values():
        each.close()


@pytest.mark.parametrize(("name", "index"), EACH)
def test_a_row_is_planned_run_verified_and_used(name: str, index: int, place: Placed, tmp_path: pathlib.Path) -> None:
    TABLES[name].story(ROWS[name][index], place(name), tmp_path / "story").tell()


@pytest.mark.kafka
@pytest.mark.parametrize(("name", "index"), TOPICS)
def test_a_row_of_a_topic_is_run(name: str, index: int, place: Placed, tmp_path: pathlib.Path) -> None:
    with needed("kafka"):
        at = place(name)
    ALL[name].story(ROWS[name][index], at, tmp_path / "story").tell()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), RULES)
def test_levels_that_exclude_each_other_are_refused_in_a_sentence(
    name: str, rule: Excluded, place: Placed, tmp_path: pathlib.Path
) -> None:
    for index, row in enumerate(TABLES[name].table.only_excluded_by(rule)):
        TABLES[name].story(row, place(name), tmp_path / str(index)).be_refused(str(rule.refusal))


@pytest.mark.slow
def test_an_epoch_that_the_budget_does_not_cover_is_refused(place: Placed, tmp_path: pathlib.Path) -> None:
    StreamStory(ROWS["stream"][0], place("stream"), tmp_path / "story").lack_budget()


@pytest.mark.slow
@pytest.mark.parametrize("ledger", ["lacking", "small_limit"])
def test_an_aggregator_refuses_what_its_budget_does_not_cover(
    ledger: str, place: Placed, tmp_path: pathlib.Path
) -> None:
    PartyStory(ROWS["roles"][0] | {"ledger": ledger}, place("roles"), tmp_path / "story").lack_budget()


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_every_setting_is_in_a_table(name: str, job: str) -> None:
    told = TABLES[name]
    assert unknown_settings(job, (*told.table.factors, *told.others), told.unvaried) == set()


@pytest.mark.parametrize("name", ALL)
def test_every_pair_that_may_meet_stands_in_a_row(name: str) -> None:
    table = ALL[name].table
    held = {(one, other) for row in table.rows() for one in row.items() for other in row.items()}
    assert [pair for pair in table.pairs() if pair not in held and table.completed(dict(pair))] == []


@pytest.mark.parametrize("name", ALL)
def test_every_level_stands_in_a_row_of_every_submission(name: str) -> None:
    table = ALL[name].table
    rows = table.rows()
    few = [rows[index] for index in table.few()]
    levels = {cell for row in rows for cell in row.items()}
    assert {cell for row in few for cell in row.items()} == levels
    assert all(any(part.items() <= row.items() for row in few) for part in table.kept)
    assert len(few) <= max(6, len(rows) // 2)
