"""Pairs of everything that private reports may be asked: parameters, reports, statement and page agree."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.scenes import lake
from tests.seams import reports
from tests.seams.array import Excluded
from tests.seams.settings import unknown_settings

ROWS = reports.TABLE.rows()


@pytest.fixture(autouse=True)
def _keys_of_runs() -> Iterator[None]:
    with lake.keys_of_runs():
        yield


@pytest.mark.parametrize("index", range(len(ROWS)), ids=str)
def test_reports_are_encoded_shuffled_and_decoded(index: int, tmp_path: pathlib.Path) -> None:
    reports.ReportStory(ROWS[index], tmp_path / "story").tell()


@pytest.mark.parametrize("rule", reports.EXCLUDED, ids=str)
def test_what_reports_cannot_have_is_refused_in_a_sentence(rule: Excluded, tmp_path: pathlib.Path) -> None:
    for index, row in enumerate(reports.TABLE.only_excluded_by(rule)):
        reports.ReportStory(row, tmp_path / str(index)).be_refused(str(rule.refusal))


@pytest.mark.parametrize("job", ["encode", "shuffle", "decode"])
def test_every_setting_of_reports_is_in_the_table(job: str) -> None:
    assert unknown_settings(job, reports.FACTORS, reports.UNVARIED) == set()
