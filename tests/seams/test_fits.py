"""Pairs of everything that a private fit may be asked: files, page, plan and what is said agree."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.scenes import lake
from tests.seams import fits
from tests.seams.fit_story import Story
from tests.seams.places import Place
from tests.seams.tables import tiers

ROWS = fits.TABLE.rows()
FEW = fits.TABLE.few()
ACCURATE = {*FEW[::11], *range(0, len(ROWS), 11)}
"""In these jobs the plan looks for an epsilon."""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Rows in every form; keys are those of runs, as users have them."""
    with lake.keys_of_runs():
        yield Place(tmp_path_factory.mktemp("seams"))


@pytest.mark.parametrize("index", tiers(ROWS, FEW))
def test_a_job_is_planned_run_verified_and_used(index: int, place: Place, tmp_path: pathlib.Path) -> None:
    Story(ROWS[index], place, tmp_path / "story", accuracy=index in ACCURATE).tell()
