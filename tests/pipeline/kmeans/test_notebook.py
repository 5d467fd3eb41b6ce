"""Displays of a fit in a notebook: report, guarantee, plan, clusters and progress, from the record of the release."""

import dataclasses
import html
import json
import math
import pickle
import re
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

from dapple_dp import ClustersDisplay, ConfigError, DPKMeans, DPTopics, PrivacyStatement
from dapple_dp.pipelines.run.folder import REPORT_FILE
from dapple_dp.transforms.kmeans import simulated_fit
from tests.scenes import lake
from tests.scenes.ledgers import basic_limit, new_ledger

mpl.use("agg")
pytestmark = pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
CENTERS = np.array([[30.0, 10.0], [60.0, 80.0]])
DOMAIN = {"age": (17, 90), "hours": (0, 99)}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
ALL = ("by column", "no names", "client", "missing", "server data", "topics", "tree")


def matrix(n_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    return CENTERS[rng.integers(0, 2, n_rows)] + rng.normal(size=(n_rows, 2))


def people(n_rows=600, seed=0):
    return pa.table(dict(zip(DOMAIN, matrix(n_rows, seed).T.copy(), strict=True)))


def estimator(**more):
    return DPKMeans(2, **BUDGET, domain=DOMAIN, **more)


def fits(kind):
    """An estimator, its rows, what else `fit` takes, and what `plan` takes beside the number of rows."""
    rows, table = matrix(), people()
    match kind:
        case "by column":
            return estimator(), table, {}, {}
        case "no names":
            return DPKMeans(2, **BUDGET, clipping_norm=120.0), rows, {}, {"columns": 2}
        case "client":
            return estimator(unit="client", client_rows=3), table, {"groups": np.arange(600) // 3}, {}
        case "missing":
            holes = table.set_column(0, "age", pa.array([None, *table["age"].to_pylist()[1:]]))
            return estimator(missing={"age": {"fill": 40.0, "indicator": True}}), holes, {}, {}
        case "server data":
            public = people(90, seed=1)
            return DPKMeans(2, **BUDGET), table, {"server_data": public}, {"server_data": public}
        case "topics":
            texts = np.abs(rows) / np.linalg.norm(rows, axis=1, keepdims=True)
            found = DPTopics(2, **BUDGET, unit="record", reason="each text is of another person")
            return found, texts, {}, {"columns": 2}
        case "tree":
            return DPKMeans(2, **BUDGET, algorithm="central_tree", clipping_norm=120.0), rows, {}, {"columns": 2}
    raise LookupError(kind)


@pytest.fixture(scope="module")
def fitted():
    return estimator().fit(people())


@pytest.mark.parametrize("kind", ALL)
def test_a_fit_shows_its_report_its_guarantee_and_its_clusters(kind, tmp_path):
    model, rows, more, _ = fits(kind)
    shown = _shown(model.fit(rows, **more), tmp_path / "page.html")
    assert _shown(pickle.loads(pickle.dumps(model)), tmp_path / "again.html") == shown
    model.save(tmp_path / "saved")
    assert _shown(DPKMeans.load(tmp_path / "saved"), tmp_path / "loaded.html") == shown
    DPKMeans.load(tmp_path / "saved").save(tmp_path / "copy")
    assert (tmp_path / "copy" / REPORT_FILE).read_text() == shown[0]


def _shown(model, path):
    """Returns what everything shows; the page must be the one in the frame."""
    report = model.report()
    report.save(path)
    page, frame = path.read_text(), report._repr_html_()
    assert html.unescape(re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox style="[^"]*"></iframe>', frame)[1]) == page
    assert "Private clustering" in page
    assert "<script" not in page
    display = ClustersDisplay.from_estimator(model)
    numbers = [each.tolist() for each in (display.sizes, display.size_noise, display.centers)]
    noise = np.nan_to_num(display.center_noise, nan=-1.0).tolist()
    return page, str(model.privacy_), model.privacy_, numbers, noise, display.columns, display.counted


def test_a_page_that_was_changed_or_is_not_there_is_not_shown(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    loaded = DPKMeans.load(tmp_path / "saved")
    del loaded._run.files[REPORT_FILE]
    with pytest.raises(ConfigError, match=r"has no report\.html, so there is no report to show"):
        loaded.report()
    (tmp_path / "saved" / REPORT_FILE).write_text("another page")
    with pytest.raises(ConfigError, match=r"report\.html in .* was changed after the fit wrote it"):
        DPKMeans.load(tmp_path / "saved")


def test_a_folder_of_the_command_shows_its_own_page(tmp_path):
    path = lake.write_files(tmp_path / "rows", [people()])
    job = {"algorithm": "auto", "data": {"path": path, "features": list(DOMAIN)}, "n_clusters": 2}
    job |= {"privacy": BUDGET | {"unit": "record"}, "dp_lloyd": {"domain": [0, 99]}}
    done = lake.run_job(job, tmp_path)
    assert done.code == 0, done.err
    model = DPKMeans.load(tmp_path / "out")
    model.report().save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "out" / REPORT_FILE).read_bytes()
    assert model.privacy_.facts["checked"] == "the graph that Beam ran, before any row was read"
    assert ClustersDisplay.from_estimator(model).columns == ("age", "hours")


def test_a_report_that_cannot_be_written_is_refused_in_a_sentence(fitted, tmp_path):
    with pytest.raises(ConfigError, match=r"path must be a file that can be written, got .*; No such file"):
        fitted.report().save(tmp_path / "nowhere" / "page.html")


def test_a_guarantee_prints_six_lines(fitted):
    lines = str(fitted.privacy_).splitlines()
    assert [line.split()[0] for line in lines] == ["epsilon", "unit", "neighbors", "noise", "ledger", "checked"]
    assert lines[0] == f"epsilon    {fitted.privacy_.epsilon:.6g}, delta 1e-06"
    assert lines[3].startswith(f"noise      discrete Gaussian in {len(fitted.releases_)} releases; the process that")
    assert lines[4] == "ledger     none: this fit isn't added up with others"
    assert lines[5] == f"checked    {fitted.privacy_.ran}"
    assert isinstance(fitted.privacy_, PrivacyStatement)
    alone = PrivacyStatement(
        **{field.name: getattr(fitted.privacy_, field.name) for field in dataclasses.fields(PrivacyStatement)}
    )
    assert fitted.privacy_.to_json() == alone.to_json()
    table = fitted.privacy_._repr_html_()
    assert all(f"<td>{html.escape(text)}</td>" in table for text in fitted.privacy_.facts.values())


def test_a_guarantee_names_the_ledger_that_was_charged(tmp_path):
    ledger = new_ledger(tmp_path, basic_limit(3.0, 1e-5), "<i>people</i>")
    model = estimator(ledger=ledger.path, data_name="<i>people</i>").fit(people())
    said = model.privacy_.facts["ledger"]
    assert said.startswith(f"<i>people</i> in {ledger.path}; left: epsilon 2")
    assert "<i>" not in model.privacy_._repr_html_()
    assert "&lt;i&gt;people" in model.privacy_._repr_html_()


def test_a_report_that_is_asked_for_late_says_what_the_fit_left(tmp_path):
    ledger = new_ledger(tmp_path, basic_limit(3.0, 1e-5), "people")
    model = estimator(ledger=ledger.path, data_name="people").fit(people())
    page, said = model.report()._repr_html_(), model.privacy_.facts["ledger"]
    estimator(ledger=ledger.path, data_name="people").fit(people())
    assert model.report()._repr_html_() == page
    assert said.partition("left: ")[2].partition(", delta")[0] in page


def test_a_plan_is_the_record_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_fit, "MOST_ROWS", 2000)
    data = {"path": "nowhere", "features": list(DOMAIN)}
    domain = {name: list(ends) for name, ends in DOMAIN.items()}
    job = {"algorithm": "auto", "data": data, "n_clusters": 2, "privacy": BUDGET | {"unit": "record"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"dp_lloyd": {"domain": domain}}))
    words = ("plan", "--config", str(tmp_path / "job.yaml"), "--rows", "5000", "--epsilons", "0.1,0.3,1,3")
    done = lake.run_command(*words)
    assert done.code == 0, done.err
    table = estimator().plan(5000)
    assert list(table.rows) == json.loads(done.out.splitlines()[-1])["epsilons"]
    for row in table.rows:
        assert row["smallest_cluster"] == 4.0 * row["size_noise"]
        assert row["odds"] == pytest.approx(1.0 / (1.0 + np.exp(-row["epsilon"])), abs=2e-4)
    for name in ("smallest_cluster", "center_noise"):
        assert sorted((row[name] for row in table.rows), reverse=True) == [row[name] for row in table.rows]


@pytest.mark.parametrize("kind", ALL)
def test_a_plan_says_before_a_fit_what_the_fit_will_know(kind, monkeypatch):
    monkeypatch.setattr(simulated_fit, "MOST_ROWS", 600)
    model, rows, more, known = fits(kind)
    table = model.plan(200 if kind == "client" else 600, [1.0], **known)
    (row,) = table.rows
    assert not hasattr(model, "privacy_")
    model.fit(rows, **more)
    assert row["odds"] == pytest.approx((1.0 + model.privacy_.delta / np.e) / (1.0 + np.exp(-model.privacy_.epsilon)))
    if kind != "tree":
        stddevs = model._run.model.size_stddevs
        assert row["smallest_cluster"] == pytest.approx(4.0 * stddevs.mean(), rel=0.3)
    unit = "clients" if kind == "client" else "rows"
    assert f"smallest cluster, {unit}" in str(table)
    assert f"of {200 if kind == 'client' else 600} {unit}" in str(table)
    named = {"by column": ["± age", "± hours"], "server data": ["± of a center"], "no names": ["± x0", "± x1"]}
    assert all(head in str(table) for head in named.get(kind, []))
    assert "<th>epsilon</th>" in table._repr_html_()
    model.plan(600, [1.0], **({} if kind != "server data" else known))  # The columns are known now.


def test_the_noise_of_a_column_is_in_its_unit(monkeypatch):
    """The plan of an average cluster, and the fit of two clusters of that size, say the same of each column."""
    monkeypatch.setattr(simulated_fit, "MOST_ROWS", 600)
    noise = [column["noise"] for column in estimator().plan(600, [1.0]).rows[0]["columns"]]
    display = ClustersDisplay.from_estimator(estimator().fit(people()))
    np.testing.assert_allclose(display.center_noise.mean(axis=0), noise, rtol=0.5)
    assert noise[1] / noise[0] == pytest.approx(99 / 73)
    np.testing.assert_allclose(display.center_noise[:, 1] / display.center_noise[:, 0], 99 / 73, rtol=0.05)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"columns": None}, "columns must be the number of columns or their names, got None"),
        ({"columns": "age"}, "columns must be .*, got 'age'"),
        ({"columns": True}, "columns must be .*, got True"),
        ({"columns": 0}, "columns must be .*, got 0"),
        ({"epsilons": []}, "epsilons must be 1 to 12 numbers above 0"),
        ({"epsilons": [0.0]}, "epsilons must be 1 to 12 numbers above 0"),
        ({"epsilons": ["a"]}, "epsilons must be 1 to 12 numbers above 0"),
        ({"n_rows": 0}, "n_rows must be an integer from 1 to"),
        ({"n_rows": 2.5}, "n_rows must be an integer from 1 to"),
    ],
)
def test_a_plan_of_nothing_is_refused(given, rule):
    with pytest.raises(ConfigError, match=rule):
        DPKMeans(2, **BUDGET, clipping_norm=120.0).plan(**{"n_rows": 600, "columns": 2} | given)


def test_an_epsilon_without_noise_is_said_in_the_table():
    table = estimator().plan(600, [1e-9, 1.0])
    assert str(table).splitlines()[2].split() == ["1e-09", *["-"] * 5, "refused"]
    assert "At epsilon 1e-09: epsilon must be large enough" in str(table)


def test_progress_is_a_line_a_round_without_a_number_of_the_rows(capsys):
    model = estimator(verbose=1).fit(people())
    lines = capsys.readouterr().out.splitlines()
    rounds = len({release.path.rpartition("/")[0] for release in model.releases_})
    said = [re.fullmatch(r"round (\d+) of (\d+): [\d.]+ s, about [\d.]+ s left", line) for line in lines]
    assert [(int(each[1]), int(each[2])) for each in said] == [(done, rounds) for done in range(1, rounds + 1)]
    assert lines[-1].endswith("about 0.0 s left")
    estimator().fit(people())
    assert capsys.readouterr() == ("", "")


def test_a_display_draws_whiskers_of_two_stddevs_in_the_units_of_columns(fitted):
    display = ClustersDisplay.from_estimator(fitted)
    assert display.plot() is display
    assert display.ax_ is display.axes_[0]
    assert display.ax_.figure is display.figure_
    assert [axes.get_xlabel() for axes in display.axes_] == ["noisy size, rows", "age", "hours"]
    shown = [(fitted.noisy_sizes_, display.size_noise)]
    shown += [(fitted.cluster_centers_[:, index], display.center_noise[:, index]) for index in range(2)]
    for axes, (values, noise) in zip(display.axes_, shown, strict=True):
        (bars,) = axes.containers[0].lines[2]
        ends = np.array([segment[:, 0] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends, np.stack([values - 2.0 * noise, values + 2.0 * noise], axis=1))
    low, high = display.ax_.get_ylim()
    assert low > high


def test_a_display_takes_the_place_of_given_axes(fitted):
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(2, 1)
    display = ClustersDisplay.from_estimator(fitted).plot(both[1])
    assert display.figure_ is figure
    assert display.ax_.get_position().y1 < both[0].get_position().y0
    plt.close("all")


def test_a_display_says_what_may_be_empty_and_what_is_unknown():
    model = DPKMeans(12, **BUDGET, algorithm="dp_medians", settings={"experimental": True}, domain=DOMAIN).fit(people())
    display = ClustersDisplay.from_estimator(model).plot()
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    empty = model.noisy_sizes_ < 2.0 * display.size_noise
    assert labels == [f"({index})" if empty[index] else f"{index}" for index in range(12)]
    assert empty.any()
    assert [axes.get_xlabel() for axes in display.axes_[1:]] == ["age\nnoise unknown", "hours\nnoise unknown"]


def test_a_display_without_matplotlib_says_what_to_install(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r"Plotting needs matplotlib, which is not installed; run pip install 'matplotlib>=3\.9'\."
    ):
        ClustersDisplay.from_estimator(fitted).plot()


def test_a_column_cannot_leave_the_frame_of_the_report():
    name = '"></iframe><script>alert(1)</script>'
    model = DPKMeans(2, epsilon=1.0, delta=1e-6, domain={name: (-8, 8), "b": (-8, 8)})
    planned = model.plan(600)._repr_html_()
    model.fit(pd.DataFrame(np.random.default_rng(0).normal(size=(600, 2)), columns=[name, "b"]))
    report = model.report()
    for shown in (planned, report._page, report._repr_html_(), model.privacy_._repr_html_()):
        assert "<script" not in shown
    assert report._repr_html_().count("<iframe") == 1


@pytest.mark.parametrize("epsilons", ["1", [], [math.nan], [math.inf], [0.0], [True], [1.0] * 13])
def test_a_plan_of_no_epsilon_is_refused(fitted, epsilons):
    with pytest.raises(ConfigError, match="epsilons must be 1 to 12 numbers above 0"):
        fitted.plan(600, epsilons)
