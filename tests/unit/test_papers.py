"""The page on the papers counts its own rows; figures have commands, data sets have digests."""

import ast
import importlib.util
import pathlib
import re
import sys

import numpy as np
import pytest

from benchmarks import data, machine, measurement
from benchmarks.papers import __main__ as index
from benchmarks.papers import fastlloyd_messages, figures
from benchmarks.papers.figures import FIGURES

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATUSES = ("full", "differs", "partial", "missing", "elsewhere")


def tables():
    """Rows of cells by heading of the page on the papers and of its table."""
    text = (ROOT / "docs" / "papers.md").read_text() + (ROOT / "benchmarks" / "papers" / "coverage.md").read_text()
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        found[part.splitlines()[0]] = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]
    return found


def rows_of_papers():
    return {name: rows for name, rows in tables().items() if rows and len(rows[0]) == 4}


def test_counts_are_those_of_the_rows():
    papers = rows_of_papers()
    counted = {row[0]: [int(cell) for cell in row[1:]] for row in tables()["Counts"]}
    expected = {
        name: [len(rows), *(sum(row[2] == each for row in rows) for each in STATUSES)] for name, rows in papers.items()
    }
    expected["all"] = [sum(column) for column in zip(*expected.values(), strict=True)]
    assert counted == expected
    assert counted["all"][0] == 136


def test_whatever_is_not_full_says_why():
    for rows in rows_of_papers().values():
        for part, where, status, why in rows:
            assert status in STATUSES, part
            assert status == "full" or why, part
            assert (where == "-") == (status == "missing"), part


def test_figures_of_the_page_have_commands():
    cells = [row[1] for rows in rows_of_papers().values() for row in rows]
    named = [name for cell in cells for name in re.findall(r"`([a-z0-9-]+)`", cell)]
    assert set(named) <= set(FIGURES)
    assert len(set(named)) > 15


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_a_result_is_there(figure):
    assert figure.result is None or (ROOT / figures.RESULTS / figure.result).exists()
    assert (ROOT / "benchmarks" / f"{figure.module.replace('.', '/')}.py").exists()


def test_the_list_has_every_figure_and_adds_up_times():
    lines = index.table({"naive": 1.5, "one-round": 122.5})
    assert lines[-1] == f"{len(FIGURES)} commands; 2 with a known time, 124 s (2 minutes) together."
    assert len(lines) == 2 + len(FIGURES) + 2


def test_seconds_are_those_of_the_head(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert figures.seconds("naive") is None
    (tmp_path / "naive.md").write_text("- seconds: 3\n")
    assert figures.seconds("naive") is None
    (tmp_path / "naive.md").write_text("- took: 12.5 s, 11.0 s of CPU\n")
    assert figures.seconds("naive") == 12.5


def test_a_head_says_what_ran_where_and_what_it_took(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.sys, "argv", ["/place/tests/seams/__main__.py", "--every"])
    measurement.show(machine.heading("Title"), tmp_path / "new" / "result.md")
    text = (tmp_path / "new" / "result.md").read_text()
    names = re.findall(r"^- (\w+):? ", text, re.MULTILINE)
    assert names == ["command", "date", "machine", "Dapple", "commit", "took"]
    assert "- command: `python -m tests.seams --every`\n" in text
    assert machine.took(text) > 0.0


def test_a_figure_without_its_files_is_refused(tmp_path):
    with pytest.raises(LookupError, match="fastlloyd needs files; give --data"):
        figures.draw("fastlloyd", tmp_path, tmp_path)


def test_a_figure_without_its_library_says_what_to_install_before_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LookupError, match=r"r-dpcfl-cnn needs jax; run pip install jax first"):
        figures.draw("r-dpcfl-cnn", tmp_path, tmp_path, tmp_path)


def test_commands_import_what_dapple_requires_and_nothing_else():
    """So they run where `./run_local.sh` has installed Dapple."""
    pins = (ROOT / "requirements.txt").read_text()
    known = {name.lower().replace("-", "_") for name in re.findall(r"^([\w.-]+)==", pins, re.MULTILINE)}
    known |= {
        "apache_beam",
        "sklearn",
        "yaml",
        "benchmarks",
        "dapple_dp",
        "tests",
    }
    known |= {figure.needs for figure in figures.FIGURES.values()}
    for path in (ROOT / "benchmarks" / "papers").glob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text()))]
        names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
        names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
        others = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - known
        assert not others, path.name


def test_bytes_are_those_of_the_paper():
    for (_, k, d), (_, sent) in fastlloyd_messages.PUBLISHED.items():
        assert fastlloyd_messages.n_bytes(k, d) == sent


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_what_scikit_learn_brings_is_the_data_of_the_papers(name):
    assert data.rows(name).shape == data.SETS[name].shape


def test_another_file_under_the_name_is_refused(tmp_path):
    with pytest.raises(LookupError, match=r"lsun needs lsun\.npz with an array 'X'"):
        data.rows("lsun", tmp_path)
    for values, rule in (
        (np.zeros((400, 3)), "shape"),
        (np.full((400, 2), np.nan), "finite"),
        (np.zeros((400, 2)), "must have the SHA-256"),
    ):
        np.savez(tmp_path / "lsun.npz", X=values)
        with pytest.raises(ValueError, match=rule):
            data.rows("lsun", tmp_path)
    np.savez(tmp_path / "lsun.npz", X=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        data.rows("lsun", tmp_path)


def test_the_state_of_a_set_is_shown(tmp_path, monkeypatch):
    monkeypatch.setitem(data.SETS, "yeast", data.SETS["yeast"]._replace(digest=None))
    np.savez(tmp_path / "s1.npz", X=np.zeros((5000, 2)))
    np.savez(tmp_path / "yeast.npz", X=np.zeros((1484, 8)))
    states = {line.split(" | ")[0][2:]: line.split(" | ")[-1][:-2] for line in data.table(tmp_path)[2:]}
    assert (states["s1"], states["yeast"], states["iris"], states["birch2"]) == (
        "other values",
        "yes, not compared",
        "yes",
        "no",
    )


@pytest.mark.parametrize(("d", "k"), [(1, 2), (2, 9), (16, 4)])
def test_synthetic_clusters_have_growing_sizes_and_few_outliers(d, k):
    rows = data.synth(d, k, seed=1, n_rows=1000)
    assert rows.shape[1] == d
    assert 1000 - k <= len(rows) <= 1000 + k + data.MOST_OUTLIERS
    np.testing.assert_array_equal(rows, data.synth(d, k, seed=1, n_rows=1000))


def test_the_nearest_clusters_are_as_far_apart_as_asked():
    random = np.random.default_rng(0)
    means, variances = random.normal(size=(5, 3)), random.uniform(1.0, 10.0, (5, 3))
    means *= data._scale(means, variances, 0.2)
    found = []
    for first in range(5):
        for second in range(first):
            line = means[first] - means[second]
            unit = (line / np.linalg.norm(line)) ** 2
            stddevs = np.sqrt(unit @ variances[first]) + np.sqrt(unit @ variances[second])
            found.append(data.separation_index(float(np.linalg.norm(line)), float(stddevs)))
    assert min(found) == pytest.approx(0.2)


def test_other_generators_have_their_shapes():
    assert data.g2(3).shape == (2048, 3)
    rows = data.timesynth(1000, 2, 5)
    assert rows.shape == (1000, 2)
