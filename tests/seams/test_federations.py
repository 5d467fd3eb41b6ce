"""Pairs of everything that federated learning may be asked: statement, page, models and ledger agree."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.scenes import lake
from tests.seams import federations
from tests.seams.array import Excluded
from tests.seams.settings import unknown_settings

ROWS = federations.TABLE.rows()


@pytest.fixture(autouse=True)
def _keys_of_runs() -> Iterator[None]:
    with lake.keys_of_runs():
        yield


@pytest.mark.parametrize("index", range(len(ROWS)), ids=str)
def test_a_federation_trains(index: int, tmp_path: pathlib.Path) -> None:
    federations.FederationStory(ROWS[index], tmp_path / "story").tell()


@pytest.mark.parametrize("rule", federations.EXCLUDED, ids=str)
def test_what_a_federation_cannot_have_is_refused_in_a_sentence(rule: Excluded, tmp_path: pathlib.Path) -> None:
    for index, row in enumerate(federations.TABLE.only_excluded_by(rule)):
        federations.FederationStory(row, tmp_path / str(index)).be_refused(str(rule.refusal))


def test_every_setting_of_a_federation_is_in_the_table() -> None:
    assert unknown_settings("clustered_fl", federations.FACTORS, federations.UNVARIED) == set()
