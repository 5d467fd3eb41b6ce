"""Pairs of everything that a private fit may be asked: files, page, plan and what is said agree."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.scenes import lake
from tests.seams import fits
from tests.seams.array import Excluded, Row
from tests.seams.fit_story import Story
from tests.seams.places import Place
from tests.seams.settings import settings_of

ROWS = fits.TABLE.rows()
EACH = 11
"""Every so many jobs the plan looks for an epsilon."""
UNVARIED = {
    "k_fed": "of a job without privacy",
    "optimal": "of a job without privacy",
    "unit": "of a job without privacy",
    "recurring.epoch": "of the windows of a stream, which writes it",
    "masked.parties": "of parties with jobs of their own",
    "masked.identity_uri": "of parties with jobs of their own",
    "masked.state_uri": "of parties with jobs of their own",
    "data.table.catalog": "needs a catalog beside the table",
    "data.table.identifier": "needs a catalog beside the table",
}
"""Settings, or sections of them, that no factor varies."""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Rows in every form; keys are those of runs, as users have them."""
    with lake.keys_of_runs():
        yield Place(tmp_path_factory.mktemp("seams"))


@pytest.mark.parametrize("index", range(len(ROWS)), ids=str)
def test_a_job_is_planned_run_verified_and_used(index: int, place: Place, tmp_path: pathlib.Path) -> None:
    Story(ROWS[index], place, tmp_path / "story", accuracy=index % EACH == 0).tell()


@pytest.mark.parametrize("rule", [each for each in fits.EXCLUDED if each.refusal], ids=str)
def test_levels_that_exclude_each_other_are_refused_in_a_sentence(
    rule: Excluded, place: Place, tmp_path: pathlib.Path
) -> None:
    for index, row in enumerate(refused_rows(rule)):
        Story(row, place, tmp_path / str(index)).be_refused(rule.refusal)


def refused_rows(rule: Excluded) -> list[Row]:
    """For each of the levels that exclude each other a row that is excluded by nothing else."""
    return fits.TABLE.only_excluded_by(rule)


def test_every_setting_of_a_fit_is_in_the_table() -> None:
    known = {path for each in fits.FACTORS for path in each.covers} | set(UNVARIED)
    assert {path for path in settings_of("fit") if not any(_is_part(path, each) for each in known)} == set()


def _is_part(path: str, known: str) -> bool:
    """Whether a setting is in a known section, or a section that one class has no settings in."""
    return path == known or path.startswith(f"{known}.") or known.startswith(f"{path}.")


def test_every_pair_that_may_meet_stands_in_a_row() -> None:
    held = {(one, other) for row in ROWS for one in row.items() for other in row.items()}
    for pair in fits.TABLE.pairs():
        if pair not in held:
            assert fits.TABLE.completed(dict(pair)) is None, pair
