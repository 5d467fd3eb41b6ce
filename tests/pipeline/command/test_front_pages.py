"""Lines pasted from the README, the front page of the site and the first steps do what these pages say."""

import ast
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from tests import report_pictures
from tests.scenes import browser
from tests.scenes.lake import run_command
from tests.scenes.pages import FENCE, ROOT

README = ROOT / "README.md"
FRONT = ROOT / "docs" / "index.md"
FIRST_STEPS = ROOT / "docs" / "start" / "five-minutes.md"


def blocks(page: pathlib.Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


def lines_of_the_command(page: pathlib.Path) -> list[list[str]]:
    """Words of all calls of `dapple` on a page, without `dapple`."""
    lines = [shlex.split(line, comments=True) for text in blocks(page, "console") for line in text.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["dapple"] and words[1] != "--version"]


def pasted(code: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    """Returns what a Python of its own says to some lines; a warning of any library would be seen."""
    words = [sys.executable, "-c", code]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def numbers(text: str) -> np.ndarray:
    """Centers as they are printed, in order."""
    return np.array(sorted(re.findall(r"[-\d.]+", row) for row in re.findall(r"\[([^\[\]]+)\]", text))).astype(float)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Returns what the lines of the README print, and nothing else is said."""
    [code] = blocks(README, "python")
    done = pasted(code, tmp_path_factory.mktemp("anywhere"))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_lines_of_the_readme_print_what_it_shows(said):
    [shown] = blocks(README, "text")
    assert said.splitlines()[-1] == shown.splitlines()[-1]
    np.testing.assert_allclose(numbers(said), numbers(shown), atol=1.0)


def test_the_lines_of_the_readme_end_with_the_epsilon_that_was_spent(said):
    spent = float(re.fullmatch(r"epsilon spent: ([\d.]+)", said.splitlines()[-1])[1])
    assert 0.99 < spent <= 1.0


def test_the_front_page_of_the_site_shows_the_lines_of_the_readme():
    for language in ("python", "text"):
        assert blocks(FRONT, language) == blocks(README, language)
    assert blocks(FRONT, "console")[0] == blocks(README, "console")[0]


def test_six_lines_will_do():
    [code] = blocks(README, "python")
    assert len([line for line in code.splitlines() if line]) <= 6
    assert max(map(len, code.splitlines())) <= 90
    assert len(ast.parse(code).body) <= 6


def test_the_command_of_the_readme_takes_a_file_to_the_files_it_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, fit = lines_of_the_command(README)
    path = pathlib.Path(first[first.index("--data") + 1])
    rows = np.random.default_rng(0).uniform(0.0, 100.0, size=(500, 2))
    table = pa.table({"age": rows[:, 0], "hours": rows[:, 1]})
    (pyarrow.csv.write_csv if path.suffix == ".csv" else pq.write_table)(table, path)
    for words in (first, fit):
        done = run_command(*words)
        assert done.code == 0, done.err
    files = {each.name for each in (tmp_path / "result").iterdir()}
    assert files == set(re.findall(r"^\| `([\w.]+)` \|", README.read_text(), re.MULTILINE))


def test_the_first_steps_can_be_pasted_from_the_first_to_the_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, centers = blocks(FIRST_STEPS, "python")
    first, fit = lines_of_the_command(FIRST_STEPS)
    assert pasted(rows, tmp_path).returncode == 0
    assert run_command(*first).code == 0
    [shown] = blocks(FIRST_STEPS, "yaml")
    assert yaml.safe_load((tmp_path / "job.yaml").read_text()) == yaml.safe_load(shown)
    assert run_command(*fit).code == 0
    printed = [line.rsplit(" ", 1) for line in pasted(centers, tmp_path).stdout.splitlines()]
    found, sizes = (
        np.array(sorted(ast.literal_eval(center) for center, _ in printed)),
        [float(size) for _, size in printed],
    )
    assert all(2_500 < size < 3_500 for size in sizes)
    np.testing.assert_allclose(found, [[25, 10], [45, 40], [70, 20]], atol=1.0)


@pytest.mark.parametrize("scheme", report_pictures.SCHEMES)
def test_a_picture_is_wide_light_and_shown_on_both_pages(scheme):
    path = report_pictures.FOLDER / f"report-{scheme}.png"
    with Image.open(path) as picture:
        assert picture.width == report_pictures.WIDTH
    assert path.stat().st_size <= report_pictures.MOST_BYTES
    assert f"docs/images/report-{scheme}.png" in README.read_text()
    assert f"images/report-{scheme}.png" in FRONT.read_text()


@pytest.mark.parametrize("page", [README, FRONT], ids=lambda page: page.name)
def test_pictures_are_there_and_are_described(page):
    text = page.read_text()
    sources = re.findall(r'(?:src|srcset)="([^"]+)"', text) + re.findall(r"^```\{image\} (\S+)", text, re.MULTILINE)
    assert len(sources) == len(report_pictures.SCHEMES)
    assert all((page.parent / source).is_file() for source in sources)
    assert len(re.findall(r"alt=\"[^\"]{40,}\"|^:alt: .{40,}", text, re.MULTILINE)) == text.count("alt")


REPORT = """<style>
:root { color-scheme: light dark; --page: #fff } @media (prefers-color-scheme: dark) { :root { --page: #111 } }
body { margin: 0; background: var(--page) }</style>
<header><div class="inner"><nav>Sections</nav></div></header><main><section id="rounds"><h2>Rounds</h2></section>
<section id="clusters"><h2>Clusters</h2>PLOTS</section></main>"""
PLOT = "<figure><h3>TITLE</h3><svg height='40'></svg><figcaption>caption</figcaption></figure>"


@pytest.mark.slow
@pytest.mark.skipif(browser.find() is None, reason="no Chromium on this machine: apt-get install chromium")
def test_pictures_are_taken_of_a_page_in_both_schemes(tmp_path):
    def write(*titles):
        plots = "".join(PLOT.replace("TITLE", title) for title in titles)
        (tmp_path / "report.html").write_text(REPORT.replace("PLOTS", plots))

    corners = []
    with browser.started(browser.find()) as page:
        write("Profiles", *report_pictures.PLOTS)
        for dark in (False, True):
            report_pictures.take(page, tmp_path / "report.html", tmp_path / "picture.png", dark=dark)
            with Image.open(tmp_path / "picture.png") as picture:
                assert picture.width == report_pictures.WIDTH
                corners.append(picture.convert("RGB").getpixel((0, 0)))
        assert corners == [(255, 255, 255), (17, 17, 17)]
        write("Profiles", report_pictures.PLOTS[0])
        with pytest.raises(ValueError, match=r"must have the plots Noisy sizes, Map of the centers, and has 1 of them"):
            report_pictures.take(page, tmp_path / "report.html", tmp_path / "picture.png", dark=False)
