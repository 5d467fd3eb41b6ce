"""The report of whole runs: labeled, escaped, self-contained, repeatable, without a private number."""

import dataclasses
import html.parser
import re

import numpy as np
import pyarrow as pa
import pytest
import yaml

from dapple_dp import DPKMeans
from dapple_dp.pipelines.kmeans.plan.replay import replay
from dapple_dp.pipelines.kmeans.report import report_page as report
from dapple_dp.pipelines.kmeans.report.assumptions import Assumptions, assumptions, largest_spread
from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.kmeans.report.report_warnings import checks, run_checks, texts, warnings
from dapple_dp.pipelines.page.stamp import RunStamp
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.core import loop
from tests.scenes import lake

pytestmark = pytest.mark.slow

SECTIONS = ["guarantee", "warnings", "clusters", "rounds", "reading"]


class Reader(html.parser.HTMLParser):
    """Collects elements and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def all(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]


class Run:
    """A finished run of a mixture, without Beam."""

    def __init__(self, folder, means=lake.MEANS, unit="record", n_rows=300, server=None, **settings):
        folder.mkdir(parents=True, exist_ok=True)
        means = np.asarray(means, dtype=np.float64)
        self.points = lake.mixture(n_rows, means=means)
        path = lake.write_lake(folder / "lake", self.points)
        public = lake.mixture(60, seed=99, means=means) if server is None else server
        settings = {"n_clusters": len(means)} | settings
        job = lake.job(path, lake.write_server(folder / "server.parquet", public), unit, **settings)
        starts = np.arange(0, n_rows + 1, 10) if unit == "client" else None
        self.fit = lake.planned(job)
        self.result = lake.finished(self.fit, ClientBlock(self.points, starts))

    @property
    def text(self):
        return report.render(self.fit, self.result).html

    @property
    def warnings(self):
        view = FitView.of(self.fit, self.result)
        found = warnings(view, run_checks(view))
        return " ".join(notice.text for notice in found if notice.level == "warning")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("run"), n_rows=6000, lloyd__steps=2, data__name="a <b> & c")


@pytest.mark.parametrize(
    ("means", "settings"),
    [
        (5.0 * np.eye(3, 4), {"unit": "client"}),
        (5.0 * np.eye(3, 4), {"privacy__allocation": "paper"}),
        (5.0 * np.eye(3, 4), {"clipping__norm": "private"}),
        (5.0 * np.eye(3, 4), {"lloyd__steps": 1}),
        (5.0 * np.eye(3, 4), {"privacy__epsilon": 0.01}),
        (5.0 * np.eye(3, 4), {"quality": {}, "unit": "client"}),
        ([[1.0, 2.0, 3.0]], {}),
        ([[1.0], [9.0]], {}),
        (5.0 * np.eye(3, 400), {}),
        (5.0 * np.eye(20, 20), {"n_rows": 600}),
        ([[1.0]], {}),
        (1e60 * np.eye(3, 4), {}),
    ],
    ids=["client", "paper", "private_norm", "lloyd", "noise", "quality", "k1", "d1", "d400", "k20", "k1d1", "huge"],
)
def test_every_kind_of_run_has_a_whole_report(tmp_path, means, settings):
    run = Run(tmp_path, means, **settings)
    page = Reader(run.text)
    assert [each["id"] for each in page.all("section") if "id" in each] == SECTIONS
    assert "could not be" not in run.text
    assert not re.search(r"\bnan\b|\binf\b", re.sub(r"<style>.*?</style>", "", run.text, flags=re.S))


def test_two_thousand_features(tmp_path):
    text = Run(tmp_path, 5.0 * np.eye(3, 2000)).text
    assert "24 of 2,000 features" in text
    assert "could not be" not in text
    assert len(text) < 400_000


def test_plots_and_tables_are_labeled(run):
    text = run.text
    for heading in re.findall(r"<h3>(.*?)</h3>|<summary>(.*?)</summary>", text, re.S):
        words = "".join(heading)
        own = "Words" in words or "in Python" in words or "Assign all rows" in words
        assert own or re.search(r'class="badge (released|public)"', words), words
    for each in Reader(text).all("svg"):
        assert each["role"] == "img"
        assert each["aria-label"]
    assert text.count("<svg") == text.count("<desc>") == text.count("<figure>") >= 7


def test_the_recipe_for_labels_has_the_columns_whatever_their_names(tmp_path):
    names = ["a: [b], c", "<script>{0}", "yes", "2026-01-01"]
    rows = pa.table(dict(zip(names, np.random.default_rng(0).uniform(-1, 1, (4, 400)), strict=True)))
    DPKMeans(2, epsilon=1.0, delta=1e-6, domain=(-1, 1)).fit(rows).report().save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<script>{0}" not in page
    (recipe,) = re.findall(r"# assign\.yaml.*?(?=\n\n)", html.unescape(page), re.DOTALL)
    assert yaml.safe_load(recipe)["data"] == {"path": "TABLE", "features": names}


def test_nothing_is_labeled_as_an_evaluation(run):
    main = run.text.split("<main>")[1].split("</main>")[0]
    assert 'class="badge evaluation"' not in main


def test_the_label_says_what_is_guaranteed(run):
    text, plan = run.text, run.fit.plan
    for words in (f"{plan.epsilon:.6g} spent of 2 asked for", "record: one row", "add or remove one unit", "no ledger"):
        assert words in text
    config = run.fit.config.model_copy(update={"ledger": "ledger.sqlite"})
    kept = report.render(dataclasses.replace(run.fit, config=config), run.result).html
    assert "as the ledger says" in kept
    assert "no ledger" not in kept
    left = report.render(run.fit, run.result, report.Remaining(3.5, 1e-5)).html
    assert "epsilon 3.5, delta 1e-05" in re.sub(r"</?span[^>]*>", "", left)


def test_every_event_is_listed_with_its_share(run):
    text = run.text
    for release in run.result.model.releases:
        assert f'<th scope="row">{release.path.removeprefix("feddp_kmeans/")}' in text
    assert sum(FitView.of(run.fit, run.result).shares()) == pytest.approx(1.0)


def test_it_asks_for_nothing(run):
    page = Reader(run.text)
    assert not page.all("script")
    targets = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("href", "src", "action", "data", "srcset", "xlink:href")
    ]
    assert all(target.startswith(("#", "data:")) for target in targets)
    assert not re.search(r"@import|url\((?!#|data:)|http-equiv=.refresh|https?://", run.text)


def test_ids_are_unique(run):
    ids = [attributes["id"] for _, attributes in Reader(run.text).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_equal_inputs_give_equal_bytes(run):
    assert run.text == run.text


def test_names_are_escaped(run, tmp_path):
    assert "a &lt;b&gt; &amp; c" in run.text
    assert "<b>" not in run.text
    named = Run(tmp_path)
    names = ["<script>alert(1)</script>", "a&b", "$x$", '"quoted"']
    columns = dict(zip(names, named.points.T, strict=True))
    lake.write_files(tmp_path / "named", [lake.pa.table(columns)])
    job = lake.job(str(tmp_path / "named"), str(tmp_path / "named"), data__features=names)
    fit = lake.planned(job)
    text = report.render(fit, lake.finished(fit, ClientBlock(named.points))).html
    assert not Reader(text).all("script")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "could not be" not in text


def test_no_private_number_is_shown(run):
    text = run.text
    shown = {f"{value:.6g}" for value in run.points.ravel()}
    assert not [value for value in shown if len(value) >= 7 and value in text]
    counts = {str(len(run.points)), f"{len(run.points) // 3}.0"}
    assert not [count for count in counts if re.search(rf">\s*{re.escape(count)}\s*<", text)]


def test_a_report_that_fails_does_not_cost_the_run(run, monkeypatch):
    monkeypatch.setattr(report, "fit_sections", lambda view: 1 / 0)
    assert "could not be written" in run.text
    assert "<h1>Private clustering</h1>" in run.text


def test_the_replay_ends_at_the_released_centers(run):
    found = replay(run.fit.initial, run.fit.rounds, run.result.model.releases)
    np.testing.assert_array_equal(found.state.model().centers, run.result.model.centers)
    assert [each.name for each in found.movements] == ["centers", "lloyd_00", "lloyd_01"]
    assert all((each.distances >= 0.0).all() and (each.noise > 0.0).all() for each in found.movements)


def test_states_of_a_run_say_what_its_releases_say(run):
    states = loop.simulate(run.fit.initial, run.fit.rounds, [ClientBlock(run.points)], lake.KEY).states
    found, again = FitView.of(run.fit, run.result, states), FitView.of(run.fit, run.result)
    for one, other in zip(found.replay.movements, again.replay.movements, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.distances, other.distances)
        np.testing.assert_array_equal(one.noise, other.noise)
    assert run_checks(found) == run_checks(again)
    assert texts(run.fit, run.result, states) == texts(run.fit, run.result)


def test_noise_alone_has_ratio_one(run):
    """A scatter whose entries are all of one noise stddev: off the diagonal the noise is smaller by sqrt(2)."""
    view = FitView.of(run.fit, run.result)
    scatter, rows = view.releases[0], view.releases[1]
    ratios = dict(zip([release.path for release in view.releases], view.ratios(), strict=True))
    noise = scatter.plan.noise_stddev * np.sqrt((4 + 6 / 2) / 10)
    assert ratios[scatter.path] == pytest.approx(np.sqrt(np.mean(scatter.values.astype(float) ** 2)) / noise)
    assert ratios[rows.path] == pytest.approx(abs(rows.decoded[0]) / rows.stddev)


def test_a_good_run_has_no_warning(run):
    assert run.warnings == ""
    assert "no warnings" in run.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"privacy__epsilon": 11.0}, "is high"),
        ({"privacy__delta": 0.01, "data__public_rows": 300}, "1 / the public number of rows (300)"),
        ({"privacy__delta": 0.02}, "1 / the noisy number of rows"),
        ({"privacy__epsilon": 0.02}, "below two noise stddevs"),
        ({"privacy__epsilon": 0.02}, "is above the noise, so it tells you nothing"),
        ({"clipping__norm": 2.0}, "lie beyond. Longer rows are shortened"),
        ({"clipping__norm": 100.0}, "noise grows with the norm"),
        ({"n_clusters": 15}, "fewer than 5 for each cluster"),
        ({"means": [[0, 0, 0, 0], [900, 1, 0, 0], [0, 1, 1, 0]]}, "as wide as the median feature"),
        ({"means": [[0, 0, 0], [0, 0, 0], [50, 0, 0], [0, 50, 0]], "privacy__epsilon": 9.0}, "nearly coincide"),
    ],
)
def test_warnings(tmp_path, settings, words):
    assert words in Run(tmp_path, **settings).warnings


def test_without_server_data_a_note_says_so(tmp_path):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(300))
    fit = lake.planned(lake.job(path, None))
    text = report.render(fit, lake.finished(fit, ClientBlock(lake.mixture(300)))).html
    assert "There were no server data" in text


def test_the_run_its_day_its_data_and_its_job_are_named(run):
    stamp = RunStamp.today("night-7", config_digest(run.fit.config), run.fit.config.data.name)
    text = report.render(run.fit, run.result, stamp=stamp).html
    for words in ("night-7", stamp.day, config_digest(run.fit.config)):
        assert words in text
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", stamp.day)


def test_all_checks_are_listed_with_their_outcome(run):
    outcomes = dict(checks(run_checks(FitView.of(run.fit, run.result))).pairs)
    assert len(outcomes) >= 10
    assert outcomes.pop("Norm and server rows as the theorem on FedDP-KMeans assumes") in (
        "passed",
        "a note",
    )  # 300 rows are few
    assert outcomes.pop("Clipping norm against the public rows") == "a note"
    assert outcomes.pop("Private rows inside the clipping norm") == "not visible in what this run released"
    assert set(outcomes.values()) == {"passed"}
    assert all(name in run.text for name in outcomes)


def test_checks_that_say_nothing_of_a_run_are_not_listed(tmp_path):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(300))
    fit = lake.planned(lake.job(path, None, data__public_rows=300, privacy__epsilon=20.0))
    outcomes = dict(checks(run_checks(FitView.of(fit, lake.finished(fit, ClientBlock(lake.mixture(300)))))).pairs)
    assert "Clipping norm against the public rows" not in outcomes
    assert "Norm and server rows as the theorem on FedDP-KMeans assumes" not in outcomes
    assert outcomes["Epsilon at most 10"] == "1 warning"


def test_assumptions_of_the_theorem_by_hand():
    found = Assumptions.of(np.e**2, (2, 4), norm=0.5, spread=0.25, w_min=0.5, epsilon=2.0)
    assert found.largest_norm == pytest.approx(2 * 4 * 2 * 0.25 / (2 * 0.5))
    assert found.most_server_rows == pytest.approx(2.0 * np.e**2 * 2 * 0.25**2 / 0.5**2)


def test_the_largest_spread_is_that_of_a_cluster_in_any_direction():
    rows = np.array([[0.0, 0.0], [2.0, 2.0], [10.0, 0.0], [10.0, 1.0], [-50.0, 0.0]])
    centers = np.array([[1.0, 1.0], [10.0, 0.5], [-50.0, 0.0]])
    assert largest_spread(rows, centers) == pytest.approx(2.0)
    assert largest_spread(rows[-1:], centers) == 0.0


def test_a_run_that_the_theorem_does_not_speak_for_has_a_note(tmp_path):
    crowd = np.repeat(lake.mixture(60, seed=99), 20, axis=0)
    run = Run(tmp_path, server=crowd, privacy__epsilon=0.5)
    outcomes = dict(checks(run_checks(FitView.of(run.fit, run.result))).pairs)
    assert outcomes["Norm and server rows as the theorem on FedDP-KMeans assumes"] == "a note"
    assert "server rows (there are 1,200), up to constants, so it " in run.text


def test_the_theorem_is_about_rows_and_server_data(tmp_path):
    run = Run(tmp_path, unit="client", clipping__client_rows=10)
    assert assumptions(FitView.of(run.fit, run.result)) is None


CLIPPED = np.array([[25.0, 1.0], [55.0, 2.0], [80.0, 3.0]])


@pytest.mark.parametrize(
    ("scale", "settings", "clipped"),
    [
        (100.0, {}, True),
        (100.0, {"data__public_rows": 3000}, True),
        (1.0, {}, False),
        (100.0, {"privacy__epsilon": 0.01}, False),
        (100.0, {"unit": "client"}, False),
    ],
    ids=["server_in_other_units", "rows_public", "same_units", "drowned_in_noise", "unit_client_cannot_tell"],
)
def test_rows_that_are_nearly_all_clipped_are_warned_of(tmp_path, scale, settings, clipped):
    """The server's ages are in centuries, the rows' in years: every center lies within the norm of the origin."""
    server = lake.mixture(60, seed=99, means=CLIPPED) / scale
    found = Run(
        tmp_path, CLIPPED, n_rows=3000, server=server, clipping={"norm": "server_radius", "client_rows": 10}, **settings
    )
    assert ("Almost all rows are clipped" in found.warnings) is clipped


def test_the_tree_reveals_clipped_rows_of_clients_too(tmp_path):
    points = lake.mixture(3000, means=CLIPPED)
    for unit in ("record", "client"):
        path = lake.write_lake(tmp_path / unit, points, np.arange(3000) // 10)
        job = lake.job(path, None, unit, algorithm="central_tree", tree={"radius": 1.0}, privacy__epsilon=60.0)
        del job["clipping"]["norm"]
        fit = lake.planned(job)
        block = ClientBlock(points, np.arange(0, 3001, 10) if unit == "client" else None)
        assert "Almost all rows are clipped" in report.render(fit, lake.finished(fit, block)).html


def test_clusters_that_may_be_empty_are_not_shown_as_found(tmp_path):
    points = lake.mixture(1500, means=4.0 * np.eye(3, 6))
    job = lake.job(lake.write_lake(tmp_path / "lake", points), None, algorithm="central_tree", n_clusters=8)
    del job["clipping"]["norm"]
    fit = lake.planned(job | {"tree": {"radius": 9.0}, "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}})
    view = FitView.of(fit, lake.finished(fit, ClientBlock(points)))
    assert 0 < len(view.small_clusters) < 8
    text = report.render(fit, view.result).html
    for index in view.small_clusters:
        assert re.search(rf'<th scope="row">\({index}\)</th>\s*<td class="words">may be empty</td>', text)
        assert f">({index})</text>" in text
    assert "clusters that may be empty are left out" in text
    assert "mostly reflects the start of the run and noise" in text
    assert "public data and noise" not in text
    assert "mostly reflects public data" not in text


def test_names_of_a_list_column_are_shown(tmp_path):
    names = ["age", "hours", "pay <&>", "education Masters"]
    found = Run(tmp_path, data__feature_names=names)
    assert "education Masters" in found.text
    assert "pay &lt;&amp;&gt;" in found.text
    assert "x[0]" not in found.text
    assert found.fit.feature_names == ("x[0]", "x[1]", "x[2]", "x[3]")


def test_centers_are_shown_in_the_columns_own_units(tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 6400)
    columns = {
        "hours": np.array([20.0, 50.0])[group] + rng.normal(0.0, 2.0, 6400),
        "education": np.array(["Bachelors", "Masters"])[group],
        "age": np.array([30.0, 60.0])[group] + rng.normal(0.0, 4.0, 6400),
    }
    table = lake.pa.table(columns)
    lake.write_files(tmp_path / "lake", [table])
    lake.write_files(tmp_path / "server", [table.slice(0, 400)])
    kinds = {
        "hours": {"kind": "standardize", "from": "server"},
        "education": {"kind": "one_hot", "vocabulary": "server"},
        "age": {"kind": "quantile_bins", "bins": 4},
    }
    job = lake.job(str(tmp_path / "lake"), str(tmp_path / "server"), data__features=list(columns), n_clusters=2)
    fit = lake.planned(job | {"encode": kinds})
    text = report.render(fit, lake.finished(fit, ClientBlock(fit.contract.to_points(table, "lake")))).html
    assert "could not be" not in text
    assert "Centers in the units of the columns" in text
    typical = re.findall(r"hours (\d\d\.\d); [^<]*", text)
    assert sorted(round(float(hours) / 10.0) for hours in typical) == [2, 5]
    assert re.search(r"education Masters \((9\d|100)%\)", text)
    assert re.search(r"age \d\d\.?\d* to \d\d\.?\d*", text)
    assert "<=" not in re.sub(r"<style>.*?</style>", "", text, flags=re.S)
    assert "&lt;=" not in text
    assert "dapple assign" in text
    assert "rows @ centers.T" not in text


def test_a_run_that_bought_no_quality_says_so(run):
    assert "release how well the centers fit. The section" in run.text


def test_labels_need_no_array_of_rows_by_clusters_by_features(run):
    assert "for center in centers], axis=0)" in run.text
    assert "rows[:, None]" not in run.text


def test_grammar_of_the_meaning(tmp_path):
    text = Run(tmp_path, unit="client").text
    assert "Adding or removing all rows of one client changes the probability" in text
    assert "What all rows of one client adds" not in text
