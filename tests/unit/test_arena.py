"""The arena: adapters are short and bring nobody's code, work is kept by what decides it, scores are as by hand."""

import json
import pathlib
import types

import numpy as np
import pytest

from benchmarks.arena import cells, environments, lost, page, ranks, sets, stages, verdicts
from benchmarks.arena.__main__ import parsed
from benchmarks.arena.attacks import attributes, far_neighbors, floating_point, insertion, neighbors

pytestmark = pytest.mark.slow

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
    assert len(ATTACKS) == 11
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
    [leaking] = neighbors.scored_pairs(SYSTEM, [pair], whole, attributes._scores)
    [fair] = neighbors.scored_pairs(SYSTEM, [pair], whole, neighbors.of_centers)
    assert verdicts.bound_of(leaking) > leaking.claim
    assert verdicts.bound_of(fair) <= fair.claim


def test_few_runs_that_are_wholly_apart_refute():
    apart = neighbors.Scored("x", 0.5, 0.0, np.zeros((2, 40)), np.stack([np.zeros(40), np.ones(40)]))
    assert verdicts.bound_of(apart) > apart.claim
    assert (
        verdicts.most_of(apart)
        == verdicts.bound_of(apart)
        < verdicts.most_of(apart._replace(without=np.zeros((2, 400))))
    )
    alike = apart._replace(with_canary=apart.without)
    assert verdicts.bound_of(alike) == 0.0


def test_scores_by_hand():
    assert floating_point.lowest_bit(np.array([0.0, 1.0, 0.75, 3.0, 2.0**-30])).tolist() == [0, 0, -2, 0, -30]
    fits = {"centers": np.array([[[0.8, 0.8, 0.5], [-0.5, -0.5, 0.9]]])}
    assert insertion._scores(insertion.PAIRS[0], fits)[:2, 0].tolist() == [0.5, 0.9]


def test_a_missing_center_has_scores():
    pair = neighbors.added("x", neighbors.middle(), [1.0, 1.0])
    fits = {"centers": np.array([[[0.5, 0.5], [np.nan, np.nan]], np.full((2, 2), np.nan)])}
    [scored] = neighbors.scored_pairs(SYSTEM, [pair], [fits, fits], neighbors.of_centers)
    assert np.isfinite(scored.without).all()


def test_work_is_kept_by_what_decides_it(tmp_path):
    task = sets.Task(np.zeros((3, 2)), 1, 1e-6)
    cell = cells.Cell("diffprivlib", "iris", 1.0, 0)
    keys = {
        cells.key_of(ADAPTERS["diffprivlib"], cell, task),
        cells.key_of(ADAPTERS["emmc"], cell, task),
        cells.key_of(ADAPTERS["diffprivlib"], cell._replace(epsilon=3.0), task),
        cells.key_of(ADAPTERS["diffprivlib"], cell._replace(door="job"), task),
        cells.key_of(ADAPTERS["diffprivlib"], cell, task._replace(rows=np.ones((3, 2)))),
        cells.key_of(ADAPTERS["diffprivlib"], cell, task._replace(server=np.ones((1, 2)))),
    }
    assert len(keys) == 6
    cells.Kept(tmp_path / "cells.jsonl").keep("a", {"cost": 1.0})
    assert cells.Kept(tmp_path / "cells.jsonl").get("a") == {"digest": "a", "cost": 1.0}


def test_a_worker_gives_centers_errors_and_attributes(tmp_path):
    source = "def fit(job, seed):\n    if seed > 1:\n        raise ValueError('no')\n"
    source += "    return {'centers': job.rows[:1], 'inertia': 2.0}\n"
    (tmp_path / "adapter.py").write_text(source)
    system = types.SimpleNamespace(TITLE="x", __file__=str(tmp_path / "adapter.py"))
    here = environments.environment(ADAPTERS["not_private"], tmp_path)
    job = environments.Job(np.array([[0.5, 0.25], [1.0, 1.0]]), 2, 1.0, 1e-6, [1, 2])
    [found] = environments.fits(system, here, [job])
    np.testing.assert_array_equal(found["centers"][0], [[0.5, 0.25], [np.nan, np.nan]])
    assert found["error"].tolist() == ["", "ValueError: no"]
    np.testing.assert_array_equal(found["inertia"], [2.0, np.nan])


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    calls, kept = tmp_path / "calls", tmp_path / "cells.jsonl"
    source = f"""def fit(job, seed):
    import os
    with open({str(calls)!r}, "a+") as file:
        file.write("x")
        if file.tell() == 3:
            os._exit(9)
    return {{"centers": job.rows[:1]}}
"""
    (tmp_path / "adapter.py").write_text(source)
    system = types.SimpleNamespace(TITLE="x", __file__=str(tmp_path / "adapter.py"))
    here = environments.environment(ADAPTERS["not_private"], tmp_path)
    monkeypatch.setattr(environments, "fingerprint", lambda *_: "x")
    monkeypatch.setattr(environments, "environment", lambda *_: here)
    options = parsed(["cells", "--sets", "wine", "--draws", "2", "--home", str(tmp_path)])
    with pytest.raises(SystemExit, match="x ended"):
        list(cells.measured({"x": system}, options))
    first, second = kept.read_text().splitlines()
    kept.write_text(first + "\n" + second[:20])
    assert len(list(cells.measured({"x": system}, options))) == 6
    assert len(calls.read_text()) == 3 + 5
    assert len(list(cells.measured({"x": system}, options))) == 6
    assert len(calls.read_text()) == 3 + 5


def test_a_worker_that_ends_early_is_said(tmp_path):
    (tmp_path / "adapter.py").write_text("import sys\n\ndef fit(job, seed):\n    sys.exit('gone')\n")
    system = types.SimpleNamespace(TITLE="x", __file__=str(tmp_path / "adapter.py"))
    here = environments.environment(ADAPTERS["not_private"], tmp_path)
    with pytest.raises(SystemExit, match="x ended: gone"):
        list(environments.fits(system, here, [environments.Job(np.zeros((2, 2)), 1, 1.0, 1e-6, [1])]))


def test_a_stage_without_noise_is_the_same_rounds():
    from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.transforms.core import loop
    from dapple_dp.transforms.kmeans.simulated_fit import mean_cost

    names, privacy = [f"x{index}" for index in range(6)], {"unit": "record", "epsilon": 0.3, "delta": 1e-6}
    settings = {"algorithm": "auto", "data": {"path": "x", "features": names}, "n_clusters": 4, "privacy": privacy}
    plan = PublicFit.of(validated(settings | {"dp_lloyd": {"domain": [-1.0, 1.0]}}), np.zeros((0, 6)))
    assert stages.quiet(plan.rounds, "rounds") == list(plan.rounds)
    for door in stages.DOORS:
        for before, after in zip(plan.rounds, stages.quiet(plan.rounds, door), strict=True):
            silent = door in (f"quiet {stages.of_path(before.plan.path)}", "quiet all")
            assert (after == before) != silent
            assert after.plan.path == before.plan.path
    assert {stages.of_path(each.plan.path) for each in plan.rounds} >= {"start", "lloyd"}
    rows = sets.drawn("rows_400", 0, None).rows
    costs = [
        mean_cost(rows, loop.simulate(plan.initial, each, [ClientBlock(rows)], bytes(32)).model().centers)
        for each in (plan.rounds, stages.quiet(plan.rounds, "quiet all"))
    ]
    assert costs[1] < costs[0]


def test_lost_cells_say_why():
    def results(system, ratio, door="rounds"):
        return [
            {"system": system, "name": "iris", "epsilon": 1.0, "draw": draw, "door": door, "ratio": ratio}
            for draw in (0, 1)
        ]

    found = [*results("dapple", 4.0), *results("other", 1.5)]
    costs = {"quiet start": 1.4, "quiet fine": 4.0, "quiet lloyd": 3.0, "quiet all": 1.1}
    staged = [each for door, ratio in costs.items() for each in results("dapple", ratio, door)]
    *_, said = lost.why(found, staged, ["dapple", "other"], {"other": ranks.REFUTED})
    assert said.startswith("**few rows** (iris): lost to other \u2020 (1), at a cost of 4 against 1.5.")
    assert said.endswith(
        "Without any noise 1.1 are left; the costliest is the noise of the start, without which 4 become 1.4."
    )
    assert "not run apart" in list(lost.why(found, [], ["dapple", "other"], {}))[-1]
    row = "| iris | 1 | 4 | other{} 1.5 | apart |"
    count, *rest = lost.cells(found, ["dapple", "other"], {})
    assert "lowest mean in 0 of 1 cells. In 0 of them" in count
    assert [rest[0], rest[-1]] == ["", row.format("")]
    count, *rest = lost.cells(found, ["dapple", "other"], {"other": ranks.REFUTED})
    assert "lowest mean in 1 of 1 cells. In 0 of them" in count
    assert [*rest[:3], rest[-1]] == ["", ranks.BELOW, "", row.format(" \u2020")]
    alike = [*results("dapple", 1.0), *results("other", 1.1)]
    alike[2]["ratio"] = 1.5
    assert "In 1 of them" in next(iter(lost.cells(alike, ["dapple", "other"], {})))


def test_refuted_systems_have_no_place_and_stand_below_the_line():
    ratios = {"dapple": 2.0, "other": 3.0, "leaky": 1.0, ranks.ABOVE: 0.9}
    found = [
        {"system": system, "name": "iris", "epsilon": 1.0, "draw": draw, "ratio": ratio}
        for system, ratio in ratios.items()
        for draw in (0, 1)
    ]
    marks = {"leaky": ranks.REFUTED, "other": ranks.BEYOND}
    regimes = list(ranks.tables(ranks.regime_table, found, ["dapple", "other", "leaky"], 1.0, marks))
    assert [regimes[2], *regimes[3:6]] == [
        "| few rows | **1** (2, 2 to 2) | 2 (3, 3 to 3) |",
        *("", ranks.BELOW, ""),
    ]
    assert regimes[6:] == ["| epsilon 1 | leaky \u2020 |", "| --- | --- |", "| few rows | 1, 1 to 1 |"]
    rows = list(ranks.tables(ranks.cell_table, found, list(ratios), 1.0, marks))
    assert rows[2] == "| iris | **2** (2 to 2) | 3 (3 to 3) | 0.9 (0.9 to 0.9) |"
    assert rows[-1] == "| iris | 1 (1 to 1) |"


def test_a_system_that_is_not_built_is_reported(tmp_path):
    with pytest.raises(LookupError, match=r"benchmarks\.arena build emmc"):
        environments.environment(ADAPTERS["emmc"], tmp_path)


def test_places_and_intervals_by_hand():
    assert ranks.ranks({"a": 8.0, "b": 3.0, "c": None}) == {"a": 2, "b": 1, "c": 3}
    ratios = {"a": [2.0, 8.0], "b": [3.0, 3.0], "c": [None, 9.0], "d": [1.0, 1.0]}
    found = [
        {"system": system, "name": "iris", "draw": draw, "ratio": ratio}
        for system, both in ratios.items()
        for draw, ratio in enumerate(both)
    ]
    found += [each | {"name": "wine", "ratio": 1.0} for each in found if each["system"] == "a"]
    assert ranks.places(found, ["a", "b", "c"]) == {"a": 1.5, "b": 1.0, "c": 3.0}
    assert ranks.places(found[:1], ["a"]) == {"a": 1.0}
    mean, low, high = ranks.interval([2.0, 8.0])
    assert (round(mean, 9), round(low * high, 6)) == (4.0, 16.0)
    assert ranks.interval([2.0])[2] == np.inf


def test_a_verdict_says_what_is_refuted():
    cases = [
        {"case": "x", "claim": 1.0, "bound": 0.5, "most": 3.0},
        {"case": "y", "claim": 1.0, "bound": 2.5, "most": 3.0},
    ]
    scored = {"system": "s", "attack": "a", "cases": cases, "errors": [], "runs": 5}
    assert "**refuted** (y" in page.verdict_line(scored)
    assert "not refuted (x" in page.verdict_line(scored | {"cases": cases[:1]})
    assert "no release: NaN" in page.verdict_line(scored | {"cases": [], "errors": ["NaN"]})


def test_marks_tell_rows_in_the_box_from_those_beyond_it():
    def scored(system, attack, case, bound):
        return {"system": system, "attack": attack, "cases": [{"case": case, "claim": 0.5, "bound": bound}]}

    corner, beyond = (each.case for each in far_neighbors.PAIRS[:2])
    found = [
        scored("a", "huge_row", "of 1e6", 0.6),
        scored("b", "not_finite", "NaN", 0.6),
        scored("b", "far_neighbors", corner, 0.6),
        scored("b", "huge_row", "of 1e6", 0.6),
        scored("c", "far_neighbors", beyond, 0.4),
        scored("d", "same_key", "at a corner", 9.0),
    ]
    assert page.marks_of(found) == {"a": ranks.BEYOND, "b": ranks.REFUTED}
    assert page.marks_of([scored("c", "far_neighbors", beyond, 0.6)]) == {"c": ranks.BEYOND}


def test_a_small_arena_from_end_to_end(tmp_path):
    options = parsed(["page", "not_private", "--sets", "wine", "--draws", "1", "--home", str(tmp_path)])
    chosen = {"not_private": ADAPTERS["not_private"]}
    lines = page.lines(chosen, options)
    assert any(line.startswith("| wine | few rows | 178 | 13 | 3 |") for line in lines)
    kept = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [each["system"] for each in kept] == [*["not_private"] * 3, "best"]
    assert page.lines(chosen, options)[8:] == lines[8:]
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == len(kept)
