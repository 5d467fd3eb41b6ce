"""`dapple plan`: what it says before anything is spent, and that no private row decides it."""

import json

import numpy as np
import pytest
import yaml

from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.kmeans import simulated_fit
from dapple_dp.transforms.tables import on_launcher
from tests.scenes import lake
from tests.scenes.ledgers import gaussian, new_ledger


@pytest.fixture
def place(tmp_path):
    lake.write_server(tmp_path / "server.parquet")
    return tmp_path


def job(place, **settings):
    return lake.job(str(place / "lake"), str(place / "server.parquet"), **settings)


@pytest.fixture(autouse=True)
def _few_simulated_rows(monkeypatch):
    monkeypatch.setattr(simulated_fit, "MOST_ROWS", 2000)


def plan(place, settings, *flags):
    (place / "job.yaml").write_text(yaml.safe_dump(settings))
    return lake.run_command("plan", "--config", str(place / "job.yaml"), *flags)


def summary(place, settings, *flags):
    done = plan(place, settings, *flags)
    assert done.code == 0, done.err
    return json.loads(done.out.splitlines()[-1]) | {"text": done.out}


def public_lloyd(**settings):
    found = lake.job("nowhere", None, algorithm="dp_lloyd", dp_lloyd={"domain": [0, 10]}, **settings)
    found["data"]["features"] = ["age", "hours"]
    return {name: value for name, value in found.items() if name not in ("clipping", "feddp_kmeans")}


def test_a_plan_reads_no_private_row(place, monkeypatch):
    """The same words with no data, with some, and with others; nothing opens a private file."""
    asked = job(place, plan={"assumed_rows": 500})
    before = summary(place, asked)
    monkeypatch.setattr(on_launcher, "first_schema", lambda *_: pytest.fail("a private footer was read"))
    for n_rows in (30, 300):
        (place / "lake").mkdir(exist_ok=True)
        lake.pq.write_table(lake.table_of(lake.mixture(n_rows)), place / "lake" / f"part-{n_rows}.parquet")
        after = summary(place, asked)
        assert {**after, "seconds": 0, "text": ""} == {**before, "seconds": 0, "text": ""}
    assert (before["assumed"], before["simulated_on"]) == (500, "server data")


def test_noise_that_follows_from_earlier_releases_is_said_to_be_simulated(place):
    found = summary(place, job(place, lloyd={"steps": 1}, quality={"share": 0.1}), "--rows", "300")
    assert {each["path"]: each["fixed"] for each in found["releases"]} == {
        each["path"]: not each["path"].endswith("quality/cost") for each in found["releases"]
    }
    (line,) = [line for line in found["text"].splitlines() if "quality/cost (" in line]
    assert line.endswith(" feature units squared in the simulation")
    assert "In the simulation: the run itself decides" in found["text"]
    found = summary(place, job(place), "--rows", "300")
    assert all(each["fixed"] for each in found["releases"])
    assert "simulation:" not in found["text"]


@pytest.mark.parametrize(
    ("allocation", "known"),
    [("tuned", ["scatter", "rows"]), ("paper", ["scatter", "histogram", "lloyd_00/counts"])],
)
def test_bounds_of_clients_in_released_clusters_are_not_known_before(place, allocation, known):
    """They are medians, which may be the same in all simulated runs and another one in the run itself."""
    asked = lake.job(str(place / "lake"), str(place / "server.parquet"), "client", privacy__allocation=allocation)
    found = summary(place, asked | {"lloyd": {"steps": 1, "share": 0.4}}, "--clients", "300")
    assert [each["path"] for each in found["releases"] if each["fixed"]] == [
        each["path"] for each in found["releases"] if each["path"].endswith(tuple(known))
    ]


def test_bounds_that_are_found_by_public_starts_are_known_before(place):
    start = lake.job(str(place / "lake"), None, "client", **lake.packed(1))
    assert all(each["fixed"] for each in summary(place, start, "--clients", "300", "--width", "4")["releases"])


@pytest.mark.parametrize(
    ("masked", "variance"),
    [
        ({"noise_by": "both"}, 2.0),
        ({"scheme": "pairwise", "threshold": 2, "noise_by": "clients"}, 1.0 / (1.0 - 0.3 - 0.05)),
        ({"noise_by": "clients", "corrupt": 0.0}, 1.0),
    ],
)
def test_noise_is_that_which_is_drawn_and_multipliers_those_that_are_counted(place, masked, variance):
    """There are so many rows that noise moves centers and finds no other clusters: then more of it costs more."""
    aggregator = summary(place, job(place, trust="masked"), "--rows", "3000")
    found = summary(place, job(place, trust="masked", masked=masked), "--rows", "3000")
    slack = 1e-3  # Sums of shares are not quite of the law, which is paid from epsilon.
    for one, other in zip(aggregator["releases"], found["releases"], strict=True):
        assert other["noise_multiplier"] == pytest.approx(one["noise_multiplier"], rel=slack)
        assert other["noise_stddev"] == pytest.approx(variance**0.5 * one["noise_stddev"], rel=slack)
    assert found["size_noise"] == pytest.approx(variance**0.5 * aggregator["size_noise"], rel=slack)
    assert found["cost"]["mean"] >= aggregator["cost"]["mean"] or variance == 1.0


def test_server_data_that_are_the_private_rows_are_refused(place):
    data = lake.write_lake(place / "lake", lake.mixture(60))
    done = plan(place, lake.job(data, f"{data}/part-00.parquet"))
    assert (done.code, "server_data.path must be public" in done.err) == (2, True)


def test_noise_of_centers_that_is_unknown_is_called_so(tmp_path):
    medians = public_lloyd() | {"algorithm": "dp_medians", "experimental": True}
    found = summary(tmp_path, medians, "--rows", "3000", "--epsilons", "1,2")
    assert found["center_noise"] is None
    assert "unknown" in found["unknown_noise"]
    assert found["unknown_noise"] in found["text"]
    assert all(each["center_noise"] is None for each in found["epsilons"])
    assert found["size_noise"] > 0.0


def test_plan_describes_releases_noise_and_cost(place):
    found = summary(place, job(place), "--rows", "3000")
    releases = {each["path"].rpartition("/")[2]: each for each in found["releases"]}
    assert (releases["sums"]["shape"], releases["counts"]["shape"]) == ([3, 4], [3])
    assert found["size_noise"] == pytest.approx(releases["counts"]["noise_multiplier"], rel=1e-6)
    assert found["center_noise"] == pytest.approx(releases["sums"]["noise_stddev"] * 3 / 3000)
    assert 0.99 < found["cost"]["mean"] / found["cost"]["without_noise"] < 1.01
    assert 0.99 * 2.0 < found["epsilon"] <= 2.0
    assert found["warnings"] == []
    assert "No private row was read." in found["text"]
    assert {each["anchor"] for each in found["sharp_edges"]} >= {"edge-settings", "edge-server-data"}
    assert "(the documentation says more under 'Sharp edges'):" in found["text"]
    assert ".md" not in found["text"]


def test_too_few_rows_and_a_large_delta_are_warned_of(place):
    said = " ".join(summary(place, job(place, privacy__delta=0.02, privacy__epsilon=0.2), "--rows", "60")["warnings"])
    assert "delta 0.02 is larger than 1 / the assumed number of rows (60)" in said
    assert "an average cluster has 20 rows, and the noise of a size is" in said


def test_clipped_server_rows_are_warned_of(place):
    said = " ".join(summary(place, job(place, clipping__norm=1.0), "--rows", "500")["warnings"])
    assert "100% of the server rows are longer than the clipping norm" in said


def test_a_plan_needs_no_data_at_all(tmp_path):
    found = summary(tmp_path, public_lloyd())
    assert (found["simulated_on"], found["ledger"], found["assumed"]) == ("stand-in rows", None, 100_000)
    assert "made-up clusters" in " ".join(found["warnings"])


def test_the_width_of_a_list_column_is_asked_for(tmp_path):
    asked = public_lloyd()
    asked["data"]["features"] = "x"
    done = plan(tmp_path, asked)
    assert (done.code, "--width must be the number of features in the list column x" in done.err) == (2, True)
    assert len(summary(tmp_path, asked, "--width", "3", "--rows", "500")["releases"]) >= 3


def test_clients_are_counted_as_clients(place):
    client = job(place, unit="client")
    assert summary(place, client, "--clients", "100")["assumed"] == 100
    done = plan(place, client, "--rows", "3000")
    assert (done.code, "--rows must be left out for privacy.unit client, got 3000; give --clients." in done.err) == (
        2,
        True,
    )


def test_the_other_way_round_finds_an_epsilon(place):
    found = summary(place, job(place), "--rows", "2000", "--accuracy", "0.01")["accuracy"]["epsilon"]
    assert 0.01 < found < 20.0
    cost = summary(place, job(place, privacy__epsilon=found), "--rows", "2000")["cost"]
    assert cost["mean"] / cost["without_noise"] < 1.02
    hopeless = summary(place, job(place), "--rows", "30", "--accuracy", "0")
    assert hopeless["accuracy"]["epsilon"] is None
    assert "No epsilon up to 20" in hopeless["text"]


def own_bounds():
    found = public_lloyd()
    return found | {"dp_lloyd": {"domain": {"age": [20, 60], "hours": [0, 10]}}}


def test_epsilons_stand_side_by_side(tmp_path):
    ledger = new_ledger(tmp_path, Limit(epsilon=1.5, delta=1e-5))
    asked = own_bounds() | {"ledger": ledger.path}
    asked["data"]["name"] = "census"
    found = summary(tmp_path, asked, "--rows", "2000", "--epsilons", "3,.1,1,.5,1")
    side = found["epsilons"]
    assert [each["epsilon"] for each in side] == [0.1, 0.5, 1.0, 3.0]
    assert [each["fits"] for each in side] == [True, True, True, False]
    for name in ("size_noise", "center_noise", "share_of_bounds"):
        assert sorted((each[name] for each in side), reverse=True) == [each[name] for each in side]
    alone = summary(tmp_path, asked | {"privacy": asked["privacy"] | {"epsilon": 0.5}}, "--rows", "2000")
    assert (side[1]["cost"], side[1]["size_noise"]) == (alone["cost"]["mean"], alone["size_noise"])
    lines = found["text"].partition("The same job at other epsilons:\n")[2].splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["epsilon", "0.1", "0.5", "1", "3"]
    assert [line.split()[-1] for line in lines[1:5]] == ["fits", "fits", "fits", "refused"]
    assert ledger.entries()[-1].kind == "limit"


def test_an_epsilon_without_noise_on_the_lattice_is_said(tmp_path):
    found = summary(tmp_path, own_bounds(), "--rows", "2000", "--epsilons", "1e-9,1")
    assert found["epsilons"][0]["refused"].startswith("epsilon must be large enough")
    assert "at 1e-09: epsilon must be large enough" in found["text"]


@pytest.mark.parametrize("text", ["", "a", "1,,2", "0", "-1", "inf", "nan", ",".join(["1"] * 13)])
def test_wrong_epsilons_are_refused(tmp_path, text):
    done = plan(tmp_path, own_bounds(), "--epsilons", text)
    assert (done.code, "--epsilons must be 1 to 12 finite numbers above 0" in done.err) == (2, True)


def test_noise_stands_beside_the_bounds_of_each_column(tmp_path):
    """Bounds 20 to 60 and 0 to 10 are scaled to -1 to 1, so a step of a feature is 20 and 5 in the columns' units."""
    found = summary(tmp_path, own_bounds(), "--rows", "2000")
    age, hours = found["columns"]
    assert (age["column"], age["lower"], age["upper"], hours["upper"]) == ("age", 20.0, 60.0, 10.0)
    assert age["noise"] == pytest.approx(20.0 * found["center_noise"])
    assert hours["noise"] == pytest.approx(5.0 * found["center_noise"])
    assert f"  age: {age['noise']:.3g}, {age['noise'] / 40.0:.2%} of its bounds 20 to 60" in found["text"]
    lines, _, _ = found["text"].rpartition("\n{")
    assert "encoded units" in lines
    assert "feature units" not in lines


def test_noise_stands_beside_one_domain_and_no_ball(tmp_path, place):
    found = summary(tmp_path, public_lloyd(), "--rows", "2000")
    assert f"moves by about {found['center_noise']:.3g}, " in found["text"]
    assert "of its bounds 0 to 10." in found["text"]
    ball = summary(place, job(place), "--rows", "300")
    assert ball["columns"] == []
    assert "feature units" in ball["text"]


def test_a_column_of_words_has_no_bounds(tmp_path):
    asked = public_lloyd(dp_lloyd__domain=[-1, 1])
    asked["encode"] = {
        "age": {"kind": "bounds", "lower": 0, "upper": 90, "to": "symmetric"},
        "hours": {"kind": "one_hot", "vocabulary": ["few", "many"]},
    }
    assert [each["column"] for each in summary(tmp_path, asked, "--rows", "2000")["columns"]] == ["age"]


def test_the_ledger_says_how_many_such_runs_fit(tmp_path):
    ledger = new_ledger(tmp_path, Limit(epsilon=2.0, delta=1e-5))
    asked = public_lloyd(ledger=ledger.path, data__name="census")
    found = summary(tmp_path, asked, "--rows", "2000")
    assert found["ledger"]["runs"] == 1
    assert "; 1 such run fits." in found["text"]
    asked["privacy"] = asked["privacy"] | {"epsilon": 0.2}
    found = summary(tmp_path, asked, "--rows", "2000")
    assert found["ledger"]["runs"] > 10
    assert f"; {found['ledger']['runs']} such runs fit." in found["text"]
    assert [each.kind for each in ledger.entries()] == ["limit"]


def test_the_ledger_says_what_is_left_and_what_fits(place):
    ledger = new_ledger(place, Limit(epsilon=3.0, delta=1e-5))
    asked = job(place, ledger=ledger.path, data__name="census")
    asked["plan"] = {"assumed_rows": 500}
    before = summary(place, asked)["ledger"]
    assert (before["left"], before["refused"]) == (3.0, "")
    ledger.reserve("a", gaussian(1.7), {})
    found = summary(place, asked)["ledger"]
    assert 0.0 < found["left"] < 3.0
    assert "this run would be refused" in plan(place, asked).out
    assert f"up to epsilon {found['largest_epsilon']:g}" in found["refused"]
    fits = summary(place, asked | {"privacy": asked["privacy"] | {"epsilon": found["largest_epsilon"]}})["ledger"]
    assert fits["refused"] == ""
    assert len(ledger.entries()) == 2


@pytest.mark.parametrize("limited", [False, True])
def test_a_ledger_without_a_limit_is_said_and_not_made(place, limited):
    if limited:
        new_ledger(place, Limit(epsilon=3.0, delta=1e-5), "other")
    found = summary(place, job(place, ledger=str(place / "ledger.sqlite"), data__name="census"), "--rows", "500")
    assert found["ledger"]["largest_epsilon"] is None
    assert "the run would be refused" in found["text"]
    assert (place / "ledger.sqlite").exists() is limited


@pytest.mark.parametrize(
    ("settings", "flags", "said"),
    [
        (
            {"experimental": True, "algorithm": "optimal", "data": {"path": "x", "features": "x"}, "n_clusters": 2},
            (),
            "the job has no privacy",
        ),
        ({}, (), "algorithm is required"),
        (public_lloyd(), ("--rows", "0"), "the assumed number of rows or clients must be from 1"),
        (public_lloyd(), ("--rows", "1e3"), "the command line must be `dapple plan"),
        (public_lloyd(), ("--accuracy", "nan"), "--accuracy must be a finite number of at least 0"),
        (public_lloyd(plan={"assumed_rows": 0}), (), "plan.assumed_rows must be"),
    ],
)
def test_wrong_words_are_refused(tmp_path, settings, flags, said):
    done = plan(tmp_path, settings, *flags)
    assert (done.code, said in done.err) == (2, True)


def test_nightly_runs_are_planned_together(tmp_path):
    ledger = new_ledger(tmp_path, Limit(epsilon=4.0, delta=1e-6))
    done = lake.run_command("ledger", "plan", "--ledger", ledger.path, "--dataset", "census", "--runs", "365")
    each = json.loads(done.out.splitlines()[-1])["epsilon"]
    assert each == pytest.approx(4.0 / np.sqrt(365), rel=0.35)
    for words in (("--dataset", "other", "--runs", "3"), ("--dataset", "census", "--runs", "0")):
        assert lake.run_command("ledger", "plan", "--ledger", ledger.path, *words).code in (2, 3)
