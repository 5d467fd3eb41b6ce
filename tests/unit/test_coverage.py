"""Every algorithm has rows of measured intervals at both units, or says that it states none."""

from pathlib import Path

import pytest

from benchmarks import coverage
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.transforms.kmeans.protocols import PROTOCOLS

ALGORITHMS = sorted({*Algorithm, "windows"} - {Algorithm.AUTO})
FITS = [f"{unit}, {name}" for name in (*ALGORITHMS, "topics") for unit in PrivacyUnit]
RESULTS = Path("benchmarks/results")


def rows(name="coverage.md"):
    """Cells of a page by kind and claim."""
    text = (RESULTS / name).read_text()
    lines = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return {(cells[0], cells[1]): cells[2:] for cells in lines if cells[0] not in ("kind", "---")}


def test_every_algorithm_has_a_kind_at_both_units():
    assert set(FITS) == set(coverage.FITS)
    assert set(ALGORITHMS) == set(PROTOCOLS)


@pytest.mark.parametrize("kind", FITS)
def test_a_run_states_an_interval_of_each_size_and_of_each_center_whose_noise_is_known(kind):
    found = coverage.KINDS[kind](0)
    assert found["sizes"][1] > 0
    assert (found["centers"][1] == 0) == (kind in coverage.UNKNOWN)
    if kind in coverage.UNKNOWN:
        assert found["false features"] == (0, 0)


@pytest.mark.parametrize("kind", FITS)
def test_the_page_has_rows_of_sizes_and_centers_for_it(kind):
    found = rows()
    for claim in ("sizes", "centers"):
        n_runs, _, share, *_ = found[kind, claim]
        assert int(n_runs) >= coverage.RUNS
        assert share.startswith("unknown") == (claim == "centers" and kind in coverage.UNKNOWN)


@pytest.mark.parametrize(("name", "kinds"), [("coverage.md", coverage.FITS), ("coverage_pages.md", coverage.PAGES)])
def test_every_kind_is_on_its_page_and_every_claim_is_kept(name, kinds):
    found = rows(name)
    assert {kind for kind, _ in found} == set(kinds)
    assert all(cells[-1] == "yes" for cells in found.values()), found
