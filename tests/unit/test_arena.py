"""The arena: adapters are short and bring nobody's code, work is kept by what decides it, scores are as by hand."""

import json
import pathlib
import types

import numpy as np
import pytest

from benchmarks.arena import cells, environments, page, sets, verdicts
from benchmarks.arena.__main__ import parsed
from benchmarks.arena.attacks import attributes, floating_point, insertion, neighbors

ADAPTERS = environments.adapters()
ATTACKS = verdicts.attacks()
SYSTEM = types.SimpleNamespace(TITLE="fair", CLAIM="pure epsilon", REPOSITORY=None, NEEDS=(), WHAT="x")


@pytest.mark.parametrize("title", ADAPTERS)
def test_an_adapter_is_short_and_says_what_it_runs(title):
    found = ADAPTERS[title]
    assert len(pathlib.Path(found.__file__).read_text().splitlines()) <= 60
    assert found.WHAT
    assert title in environments.OURS or found.NEEDS
    if found.REPOSITORY is not None:
        address, commit, _ = found.REPOSITORY
        assert address.startswith("https://")
        assert len(commit) == 40
    assert all("==" in need or "~=" in need or need in ("matplotlib", "h5py", "pyyaml") for need in found.NEEDS)


def test_enough_systems_sets_and_attacks():
    foreign = [title for title, each in ADAPTERS.items() if each.CLAIM and title not in environments.OURS]
    assert len(foreign) >= 5
    assert len(sets.SETS) >= 12
    assert len(ATTACKS) == 10
    pairs = [getattr(verdicts.loaded(name), "PAIRS", (None,)) for name in ATTACKS]
    assert sum(map(len, pairs)) <= verdicts.COMPARISONS


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_asks_for_neighbors_that_differ_by_one_row(name):
    found = verdicts.loaded(name)
    asked = found.asked(ADAPTERS["diffprivlib"], 4)
    assert {each.side for each in asked} == {0, 1}
    lengths = {len(each.job.rows) for each in asked}
    assert {length + 1 for length in lengths} & lengths
    assert found.WHAT


def test_a_leak_is_refuted_and_fair_noise_is_not():
    pair, runs = attributes.PAIRS[0], 300
    centers = np.random.default_rng(0).uniform(-1, 1, (2, runs, 2, 2))
    whole = []
    for rows, places in zip((pair.without, pair.with_canary), centers, strict=True):
        gaps = ((rows[None, :, None] - places[:, None]) ** 2).sum(axis=3).min(axis=2).sum(axis=1)
        whole.append({"centers": places, "inertia": gaps})
    [leaking] = neighbors.told_of_pairs(SYSTEM, [pair], whole, attributes._scores)
    [fair] = neighbors.told_of_pairs(SYSTEM, [pair], whole, neighbors.of_centers)
    assert verdicts.bound_of(leaking) > leaking.claim
    assert verdicts.bound_of(fair) <= fair.claim


def test_few_runs_that_are_wholly_apart_refute():
    apart = neighbors.Told("x", 0.5, 0.0, np.zeros((2, 40)), np.stack([np.zeros(40), np.ones(40)]))
    assert verdicts.bound_of(apart) > apart.claim
    alike = apart._replace(with_canary=apart.without)
    assert verdicts.bound_of(alike) == 0.0


def test_scores_by_hand():
    assert floating_point.lowest_bit(np.array([0.0, 1.0, 0.75, 3.0, 2.0**-30])).tolist() == [0, 0, -2, 0, -30]
    fits = {"centers": np.array([[[0.8, 0.8, 0.5], [-0.5, -0.5, 0.9]]])}
    assert insertion._scores(insertion.PAIRS[0], fits)[:2, 0].tolist() == [0.5, 0.9]


def test_a_missing_center_has_scores():
    pair = neighbors.added("x", neighbors.middle(), [1.0, 1.0])
    fits = {"centers": np.array([[[0.5, 0.5], [np.nan, np.nan]], np.full((2, 2), np.nan)])}
    [told] = neighbors.told_of_pairs(SYSTEM, [pair], [fits, fits], neighbors.of_centers)
    assert np.isfinite(told.without).all()


def test_work_is_kept_by_what_decides_it(tmp_path):
    task = sets.Task(np.zeros((3, 2)), 1, 1e-6)
    cell = cells.Cell("diffprivlib", "iris", 1.0, 0)
    keys = {
        cells.key_of(ADAPTERS["diffprivlib"], cell, task),
        cells.key_of(ADAPTERS["emmc"], cell, task),
        cells.key_of(ADAPTERS["diffprivlib"], cell._replace(epsilon=3.0), task),
        cells.key_of(ADAPTERS["diffprivlib"], cell, task._replace(rows=np.ones((3, 2)))),
        cells.key_of(ADAPTERS["diffprivlib"], cell, task._replace(server=np.ones((1, 2)))),
    }
    assert len(keys) == 5
    cells.Kept(tmp_path / "cells.jsonl").keep("a", {"cost": 1.0})
    assert cells.Kept(tmp_path / "cells.jsonl").get("a") == {"digest": "a", "cost": 1.0}


def test_a_worker_gives_centers_errors_and_attributes(tmp_path):
    source = "def fit(job, seed):\n    if seed > 1:\n        raise ValueError('no')\n"
    source += "    return {'centers': job.rows[:1], 'inertia': 2.0}\n"
    (tmp_path / "adapter.py").write_text(source)
    system = types.SimpleNamespace(TITLE="x", __file__=str(tmp_path / "adapter.py"))
    here = environments.environment(ADAPTERS["not_private"], tmp_path)
    job = environments.Job(np.array([[0.5, 0.25], [1.0, 1.0]]), 2, 1.0, 1e-6, [1, 2])
    [found] = environments.fits(system, here, [job], tmp_path)
    np.testing.assert_array_equal(found["centers"][0], [[0.5, 0.25], [np.nan, np.nan]])
    assert found["error"].tolist() == ["", "ValueError: no"]
    np.testing.assert_array_equal(found["inertia"], [2.0, np.nan])


def test_a_system_that_is_not_built_is_reported(tmp_path):
    with pytest.raises(LookupError, match=r"benchmarks\.arena build emmc"):
        environments.environment(ADAPTERS["emmc"], tmp_path)


def test_ranks_and_intervals_by_hand():
    ratios = {("iris", "a"): [2.0, 8.0], ("iris", "b"): [3.0, 3.0]}
    run = {("iris", "a"), ("iris", "b"), ("iris", "c")}
    assert page.ranks(ratios, "iris", ["a", "b", "c", "d"], run) == {"a": 2, "b": 1, "c": 3}
    mean, low, high = page.interval([2.0, 8.0])
    assert (round(mean, 9), round(low * high, 6)) == (4.0, 16.0)
    assert page.interval([2.0])[2] == np.inf


def test_a_verdict_says_what_is_refuted():
    cases = [{"case": "x", "claim": 1.0, "bound": 0.5}, {"case": "y", "claim": 1.0, "bound": 2.5}]
    told = {"system": "s", "attack": "a", "cases": cases, "errors": [], "runs": 5}
    assert "**refuted** (y" in page.verdict_line(told)
    assert "not refuted (x" in page.verdict_line(told | {"cases": cases[:1]})
    assert "no release: NaN" in page.verdict_line(told | {"cases": [], "errors": ["NaN"]})


def test_a_small_arena_from_end_to_end(tmp_path):
    options = parsed(["page", "not_private", "--sets", "wine", "--draws", "1", "--home", str(tmp_path)])
    chosen = {"not_private": ADAPTERS["not_private"]}
    lines = page.lines(chosen, options)
    assert any(line.startswith("| wine | few rows | 178 | 13 | 3 |") for line in lines)
    kept = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [each["system"] for each in kept] == [*["not_private"] * 3, "best"]
    assert page.lines(chosen, options)[8:] == lines[8:]
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == len(kept)
