"""Commands that draw the papers' figures run, on next to nothing."""

import pytest

from benchmarks.papers.figures import FIGURES, draw

pytestmark = pytest.mark.slow

ALIKE = {
    "feddp-client-2000": "feddp-record",
    "feddp-client-1000": "feddp-record",
    "feddp-client-5000": "feddp-record",
    "feddp-census-private": "feddp-record",
    "feddp-census-self-employed": "feddp-record",
    "feddp-scores": "feddp-missing",
    "feddp-code": "the test of a fit",
    "r-dpcfl-label-flip": "r-dpcfl-rotation",
    "r-dpcfl-rotation-paper": "r-dpcfl-rotation",
    "r-dpcfl-label-flip-paper": "r-dpcfl-rotation",
    "r-dpcfl-rotation-replaced": "r-dpcfl-rotation",
    "r-dpcfl-fashion": "r-dpcfl-rotation",
    "r-dpcfl-fashion-label-flip": "r-dpcfl-rotation",
    "r-dpcfl-cifar": "r-dpcfl-settings, with a model that needs JAX and its own images",
    "r-dpcfl-cifar-softmax": "r-dpcfl-settings",
    "r-dpcfl-cnn": "r-dpcfl-settings, with a model that needs JAX",
}
"""Figures that run the code of another one, at the same toy size."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(set(FIGURES) - set(ALIKE)))
def test_a_toy_is_drawn(name, tmp_path):
    draw(name, tmp_path / "out", tmp_path / "work", toy=True)
    assert any(path.stat().st_size for path in (tmp_path / "out").rglob("*.md"))
