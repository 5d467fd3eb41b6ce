"""Pairs of everything that a private fit may be asked: files, page, plan and what is said agree."""

import contextlib
import json
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
SERVED = [index for index, row in enumerate(ROWS) if (row["trust"], row["start"]) == ("central", "fresh")]
"""Rows whose fit can run in one process."""
ON_BEAM = [*FEW, *sorted({*range(len(ROWS))} - {*SERVED, *FEW})[::8]]
"""Rows that run on Beam on every submission, too; all others do so at night."""
ACCURATE = {*FEW[::11], *range(0, len(ROWS), 11)}
"""In these jobs the plan looks for an epsilon."""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Rows in every form; keys are those of runs, as users have them."""
    with lake.keys_of_runs():
        yield Place(tmp_path_factory.mktemp("seams"))


@pytest.mark.parametrize(("engine", "index"), tiers(ROWS, ON_BEAM, "beam") + tiers(ROWS, SERVED, "loop", only=SERVED))
def test_a_job_is_planned_run_verified_and_used(engine: str, index: int, place: Place, tmp_path: pathlib.Path) -> None:
    story = Story(
        ROWS[index],
        place,
        tmp_path / "story",
        accuracy=index in ACCURATE and engine == "beam",
        fit_only=engine == "loop",
    )
    with lake.without_beam() if engine == "loop" else contextlib.nullcontext():
        story.tell()
    ran = json.loads((tmp_path / "story" / "fit" / "privacy.json").read_text()).get("engine")
    assert ran == ("InProcess" if engine == "loop" else None)
