"""Plots that a script draws are no part of the repository: results are tables."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BY_HAND: dict[str, str] = {}
"""SVG that someone drew by hand, by path, with the reason that it is here."""
MADE = {"out", "build", "dist", "_build"}
"""Folders of what commands write."""


def tracked(root: pathlib.Path) -> set[str]:
    """SVG files that git tracks; without git those outside of hidden folders and of what commands write."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-z", "--", "*.svg"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return set(filter(None, done.stdout.split("\0")))
        except (OSError, subprocess.CalledProcessError):
            pass
    paths = (path.relative_to(root) for path in root.rglob("*.svg"))
    return {str(path) for path in paths if not any(part in MADE or part[0] == "." for part in path.parts)}


def test_svg_of_the_repository_was_drawn_by_hand():
    assert tracked(ROOT) == set(BY_HAND)


def test_results_show_no_plot():
    pages = (ROOT / "benchmarks" / "results").rglob("*.md")
    assert [str(page) for page in pages if ".svg" in page.read_text()] == []


@pytest.mark.parametrize("broken", [False, True])
def test_without_git_a_plot_is_found(broken, tmp_path):
    for name in ("benchmarks/results/plot.svg", ".venv/logo.svg", "out/docs/logo.svg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("<svg/>")
    if broken:
        (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert tracked(tmp_path) == {"benchmarks/results/plot.svg"}
