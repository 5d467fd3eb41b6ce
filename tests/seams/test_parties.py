"""Pairs of settings of masked roles in jobs of their own: they release what one process would that plays all roles."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.scenes import lake
from tests.seams import fits, parties
from tests.seams.array import Excluded
from tests.seams.party_story import PartyStory
from tests.seams.settings import unknown_settings

pytestmark = pytest.mark.slow
ROWS = parties.TABLE.rows()
OF_FITS = {
    "recurring.epoch": "of the windows of a stream, which are refused under masks",
    "data.table": "refused or read as by a fit, which the table of fits has",
}


@pytest.fixture(autouse=True)
def _keys_of_runs() -> Iterator[None]:
    with lake.keys_of_runs():
        yield


@pytest.mark.parametrize("index", range(len(ROWS)), ids=str)
def test_roles_release_what_one_process_would(index: int, tmp_path: pathlib.Path) -> None:
    PartyStory(ROWS[index], tmp_path / "story").tell()


@pytest.mark.parametrize("ledger", ["lacking", "small_limit"])
def test_an_aggregator_refuses_what_its_budget_does_not_cover(ledger: str, tmp_path: pathlib.Path) -> None:
    PartyStory(ROWS[0] | {"ledger": ledger}, tmp_path / "story").lack_budget()


@pytest.mark.parametrize("rule", [each for each in parties.EXCLUDED if each.refusal], ids=str)
def test_what_roles_cannot_have_is_refused_in_a_sentence(rule: Excluded, tmp_path: pathlib.Path) -> None:
    for index, row in enumerate(parties.TABLE.only_excluded_by(rule)):
        PartyStory(row, tmp_path / str(index)).be_refused(str(rule.refusal))


def test_every_setting_of_an_aggregator_is_in_the_table() -> None:
    assert unknown_settings("aggregate", parties.FACTORS, {}) == set()


@pytest.mark.parametrize("job", ["upload", "unmask"])
def test_every_setting_of_the_clients_role_is_in_one_of_two_tables(job: str) -> None:
    assert unknown_settings(job, (*parties.FACTORS, *fits.FACTORS), OF_FITS) == set()
