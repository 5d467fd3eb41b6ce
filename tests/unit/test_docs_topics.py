"""Sizes and figures on the page on topics are those of the code's plans and of the results."""

import pathlib
import re

import pytest

from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.kmeans.protocols import protocol_of
from dapple_dp.transforms.kmeans.spherical import rounds

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LINES = (ROOT / "docs" / "jobs" / "topics.md").read_text().splitlines()
TEXT = " ".join(LINES)
WIDTH, N_TERMS = 384, 5000


def found_from(epsilon, unit, most_per_row=32):
    """Units that a center and a name need, as `plan` says it."""
    job = {
        "algorithm": "spherical",
        "data": {"path": "texts", "features": "x", "client_id": "who"},
        "n_clusters": 30,
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": 1e-6},
        "clipping": {"client_rows": 10},
        "names": {"column": "tags", "words": list(map(str, range(N_TERMS))), "most_per_row": most_per_row},
        "justification": {"privacy.unit": "a test"},
    }
    config = validated(job)
    protocol = protocol_of(config.algorithm)
    specs = protocol.round_specs(config, WIDTH, 0)
    plan = accounting.calibrate(unit, specs, epsilon, 1e-6, protocol.allocation(config))
    center, name = rounds.units_of_a_center(config, plan, WIDTH), rounds.units_of_a_name(config, plan)
    return f"{center:,} / {name:,}"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_page_says_how_many_people_a_topic_needs_as_the_plan_does(epsilon):
    assert f"| {epsilon:g} | {found_from(epsilon, 'record')} | {found_from(epsilon, 'client')} |" in LINES


def tables(result):
    """Rows of cells below each heading of a result."""
    found, rows = {}, []
    for line in (RESULTS / result).read_text().splitlines():
        if line.startswith("## "):
            rows = found.setdefault(line.removeprefix("## "), [])
        elif line.startswith("| ") and "---" not in line:
            rows.append([each.strip() for each in line.strip("|").split("|")])
    return found


def row_of(said, cells):
    """A measured row as the page has it: the cosine and the names that are right."""
    epsilon, cosine, _, right, _, named = cells
    return f"| {said} | {epsilon} | {cosine} | {right.split('%')[0]} % | {named} |"


@pytest.mark.parametrize(
    ("result", "start", "said"),
    [
        (
            "topics_of_sentences.md",
            r"Unit record, ([\d,]+) texts by a sentence model, k = 30",
            "{} texts by a sentence model",
        ),
        ("topics.md", r"Unit record, ([\d,]+) texts by TF-IDF, k = 30", "{} texts by TF-IDF"),
        ("topics_of_terms.md", r"Unit record, ([\d,]+) packages by their \d+ tags, k = 20", "{} rows of tags"),
        ("topics_of_clients.md", r"Unit client, ([\d,]+) clients of 1 to 20 texts, k = 20", "{} clients"),
    ],
)
def test_the_page_has_the_figures_of_the_results(result, start, said):
    titles = {title: re.match(start + r", (\d+) draws$", title) for title in tables(result)}
    (title, match), *more = ((title, match) for title, match in titles.items() if match)
    assert not more
    assert int(match[2]) >= 5
    for cells in tables(result)[title][1:]:
        assert row_of(said.format(match[1]), cells) in LINES


def test_the_page_has_the_figures_of_the_attack():
    (_, *rows) = tables("topics_attack.md")["The insertion attack"]
    for _, guessed, interval, bound in rows:
        low, high = interval.replace("%", "").split(" to ")
        assert f"{guessed.replace('%', ' %')} ({low} to {high})" in TEXT
        if bound != "-":
            assert f"{float(bound.rstrip('%')):.0f} %" in TEXT


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_name_needs_half_as_many_people_where_rows_have_a_quarter_of_the_terms(unit):
    needed = [int(found_from(1.0, unit, most).split(" / ")[1]) for most in (8, 32)]
    assert needed[0] == pytest.approx(needed[1] / 2, abs=1)
    assert "Names need half of that if rows have 8 terms at most" in TEXT
