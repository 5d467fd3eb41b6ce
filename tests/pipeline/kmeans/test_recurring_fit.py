"""Runs that follow an earlier one: what they are charged, where they start, and what they say of the difference."""

import collections
import dataclasses
import json
import pathlib
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.stats
import yaml
from dp_accounting import gaussian_mechanism

from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult
from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun, load_previous
from dapple_dp.pipelines.kmeans.plan.public_fit import frame_json
from dapple_dp.pipelines.kmeans.plan.recurrence import compare_to_previous
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.saved_model import SavedModel, load_model
from dapple_dp.transforms.numerics.kmeans.centers import last_means
from dapple_dp.transforms.tables import file_seal
from tests.scenes import lake
from tests.scenes.models import run_model_job


class Series:
    """A first run and its files, for runs that follow it."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.points = lake.mixture(1200)
        self.path = lake.write_lake(folder / "lake", self.points)
        self.settings = lake.job(self.path, lake.write_server(folder / "server.parquet"), lloyd__steps=1, **settings)
        assert self.run("first").code == 0

    def run(self, name, **changes):
        settings = json.loads(json.dumps(self.settings))
        for each, value in changes.items():
            section, _, key = each.rpartition("__")
            (settings.setdefault(section, {}) if section else settings)[key] = value
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
        job, output = str(self.folder / f"{name}.yaml"), str(self.folder / name)
        return lake.run_command("fit", "--config", job, "--output", output, "--run_id", name)

    def follow(self, name, previous="first", **changes):
        return self.run(name, **{"recurring__previous": str(self.folder / previous)} | changes)

    def json(self, name, file):
        return json.loads((self.folder / name / file).read_text())

    def model(self, name):
        files = (self.folder / name / file for file in ("centers.parquet", "releases.parquet"))
        return model_from_tables(*map(pq.read_table, files))


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    found = Series(tmp_path_factory.mktemp("series"))
    assert found.follow("warm").code == 0
    assert found.follow("cold", "warm", recurring__warm_start=False).code == 0
    return found


def test_public_files_are_read_once(series, monkeypatch):
    """Server rows once more, when private files are there to be compared with them."""
    opened = collections.Counter()

    def counted(open_file):
        def count(path, *rest):
            opened[str(pathlib.Path(path).relative_to(series.folder))] += 1
            return open_file(path, *rest)

        return count

    monkeypatch.setattr(untrusted, "_opened", counted(untrusted._opened))
    monkeypatch.setattr(file_seal, "open_bytes", counted(file_seal.open_bytes))
    assert series.follow("counted").code == 0
    public = {path: count for path, count in opened.items() if path.startswith(("first/", "server"))}
    names = ("run.json", "centers.parquet", "releases.parquet", "privacy.json")
    assert public == {f"first/{name}": 1 for name in names} | {"server.parquet": 2}


def test_only_the_rounds_that_run_are_charged(series):
    """Both releases are Gaussian, so they compose to one of multiplier (sum of 1 / z^2)^(-1/2)."""
    spent = series.json("warm", "privacy.json")
    assert [event["path"] for event in spent["events"]] == [
        "feddp_kmeans/lloyd_00/sums",
        "feddp_kmeans/lloyd_00/counts",
    ]
    multiplier = sum(event["noise_multiplier"] ** -2 for event in spent["events"]) ** -0.5
    least = gaussian_mechanism.get_epsilon_gaussian(multiplier, spent["delta"])
    assert least == pytest.approx(spent["epsilon"], rel=1e-3)
    assert 0.99 * 2.0 <= spent["epsilon"] <= 2.0


def test_the_whole_budget_buys_less_noise(series):
    cold = {event["path"]: event["noise_multiplier"] for event in series.json("first", "privacy.json")["events"]}
    warm = {event["path"]: event["noise_multiplier"] for event in series.json("warm", "privacy.json")["events"]}
    assert all(noise < 0.6 * cold[path] for path, noise in warm.items())


def test_a_warm_start_is_a_lloyd_step_from_the_last_centers(series):
    """Rows far from any border of two clusters: the mean of those nearest to each earlier center, but for noise."""
    before, after = series.model("first"), series.model("warm")
    labels = ((series.points[:, None] - before.centers) ** 2).sum(axis=2).argmin(axis=1)
    means = np.stack([series.points[labels == index].mean(axis=0) for index in range(3)])
    noise = series.json("warm", "drift.json")["clusters"]
    assert np.linalg.norm(after.centers - means, axis=1).max() < 3.0 * max(each["movement_noise"] for each in noise)


def test_the_manifest_names_the_earlier_run_not_its_place(series):
    manifest = series.json("warm", "run.json")
    assert manifest["previous"] == {
        "run_id": "first",
        "digest": load_model(str(series.folder / "first")).digest,
        "warm_start": True,
    }
    assert str(series.folder) not in json.dumps(manifest | {"settings": None})
    assert "drift.json" in manifest["files"]
    assert "It follows run first." in (series.folder / "warm" / "deployment.yaml").read_text()
    assert series.json("first", "run.json")["previous"] is None
    assert not (series.folder / "first" / "drift.json").exists()


def test_numbers_last_when_centers_are_found_again(series):
    """The cold run has another order of its own; each center keeps the number of the cluster that it is in."""
    first, cold = series.model("first"), series.model("cold")
    assert np.linalg.norm(first.centers - cold.centers, axis=1).max() < 1.0
    rows = series.json("cold", "run.json")["clusters"]["released_rows"]
    counts = next(each for each in reversed(cold.releases) if each.path.endswith("/counts"))
    np.testing.assert_allclose(counts.decoded[rows], cold.noisy_sizes)


def test_drift_is_made_of_the_two_releases(series):
    first, warm, found = series.model("first"), series.model("warm"), series.json("warm", "drift.json")
    assert found["label"] == "released"
    for index, each in enumerate(found["clusters"]):
        assert each["cluster"] == index
        assert each["movement"] == pytest.approx(np.linalg.norm(warm.centers[index] - first.centers[index]))
        change = warm.noisy_sizes[index] - first.noisy_sizes[index]
        stddev = np.hypot(found["size_noise_stddev"], found["previous_size_noise_stddev"])
        assert each["size_score"] == pytest.approx(change / stddev)
        assert abs(each["movement_score"]) < 6.0


def test_both_folders_are_enough_to_write_the_drift_report(series):
    """So it holds nothing but what was released."""
    fit = dataclasses.replace(lake.planned(series.settings), previous=load_previous(str(series.folder / "first")))
    again = compare_to_previous(fit, series.model("warm"))[1]
    assert again.rows == (0, 1, 2)
    assert with_number(again.to_json()) == series.json("warm", "drift.json")


def test_the_report_has_a_section_on_drift(series):
    text = (series.folder / "warm" / "report.html").read_text()
    assert '<section id="drift">' in text
    assert "started from the centers of run first" in text
    assert '<section id="drift">' not in (series.folder / "first" / "report.html").read_text()


def test_rows_that_moved_show(series, tmp_path):
    moved = series.points + np.where(np.arange(1200) % 3 == 1, 2.0, 0.0)[:, None]
    path = lake.write_lake(tmp_path / "lake", moved)
    assert series.follow("moved", data__path=path).code == 0
    found = series.json("moved", "drift.json")
    centers = series.model("first").centers
    number = int(np.linalg.norm(centers - lake.MEANS[1], axis=1).argmin())
    scores = [each["movement_score"] for each in found["clusters"]]
    assert scores.pop(number) > 20.0
    assert max(scores) < 6.0
    assert number in found["moved"]
    assert "moved farther than noise explains" in (series.folder / "moved" / "report.html").read_text()


@pytest.mark.slow
def test_retired_numbers_stay_retired(series, tmp_path):
    """Two of three clusters keep their numbers; a third one later is new."""
    assert series.follow("two", "cold", recurring__warm_start=False, n_clusters=2).code == 0
    kept = series.json("two", "run.json")["clusters"]
    gone = series.json("two", "drift.json")["gone"]
    assert sorted([*kept["numbers"], *gone]) == [0, 1, 2]
    assert series.follow("three", "two", recurring__warm_start=False).code == 0
    again = series.json("three", "run.json")["clusters"]
    assert again["numbers"] == [*kept["numbers"], 3]
    assert again["next_number"] == 4
    assert series.json("three", "drift.json")["new"] == [3]
    job = {"model": str(series.folder / "three"), "data": {"path": series.path, "features": "x"}}
    assert run_model_job("assign", job, tmp_path).code == 0
    clusters = pq.read_table(tmp_path / "assign" / "assignments.parquet").column("cluster").to_pylist()
    assert set(clusters) == {*kept["numbers"], 3}


REFUSED = {
    "features": ({"data__features": "y"}, "recurring.previous must be a run with the features of this job"),
    "clusters": ({"n_clusters": 4}, "n_clusters must be 3 like that of "),
    "norm": ({"clipping__norm": 7.0}, "clipping must give the frame of "),
    "folder": ({"recurring__previous": "nowhere"}, "recurring.previous must be the output folder of a finished fit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mismatches_are_refused_in_one_sentence(series, case):
    changes, message = REFUSED[case]
    if case == "features":
        folder = series.folder / "other"
        table = pq.read_table(series.folder / "lake").rename_columns(["y"])
        changes = changes | {
            "data__path": lake.write_files(folder, [table]),
            "server_data__path": str(series.folder / "server_y.parquet"),
        }
        pq.write_table(
            pq.read_table(series.folder / "server.parquet").rename_columns(["y"]), changes["server_data__path"]
        )
    outcome = series.follow(f"refused-{case}", **changes)
    assert outcome.code == 2
    assert message in outcome.lines[-1]
    assert not (series.folder / f"refused-{case}").exists()


def test_another_unit_is_refused(series):
    changes = {"privacy__unit": "client", "data__client_id": "client_id", "clipping__client_rows": 5}
    outcome = series.follow("refused-unit", **changes)
    assert (outcome.code, "must be a run of privacy.unit client, got record in" in outcome.lines[-1]) == (2, True)


@pytest.mark.parametrize("name", ["centers.parquet", "releases.parquet", "privacy.json"])
def test_files_that_were_touched_are_refused(series, tmp_path, name):
    folder = tmp_path / "first"
    folder.mkdir()
    for path in (series.folder / "first").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    outcome = series.follow(f"refused-{name}", recurring__previous=str(folder))
    assert outcome.code == 2
    assert f"{name} in {folder} was changed after the fit wrote it" in outcome.lines[-1]


@pytest.mark.slow
def test_a_model_without_privacy_is_refused(series):
    settings = {name: series.settings[name] for name in ("data", "n_clusters")} | {"algorithm": "optimal"}
    (series.folder / "optimal.yaml").write_text(yaml.safe_dump(settings))
    words = ("--config", str(series.folder / "optimal.yaml"), "--output", str(series.folder / "optimal"))
    assert lake.run_command("fit", *words).code == 0
    outcome = series.follow("refused-optimal", "optimal")
    assert outcome.code == 2
    assert "recurring.previous must be a private fit, got one without privacy" in outcome.lines[-1]


@pytest.mark.slow
def test_client_level_and_dp_lloyd(tmp_path):
    """Lloyd rounds alone, and the frame of the box; DP-Lloyd starts exactly where the earlier centers lie."""
    points = lake.mixture(600)
    path = lake.write_lake(tmp_path / "lake", points, np.arange(600) // 10)
    settings = lake.job(path, lake.write_server(tmp_path / "server.parquet"), "client", lloyd__steps=1)
    lloyd = lake.job(path, None, algorithm="dp_lloyd", dp_lloyd={"domain": [-8.0, 8.0]})
    del lloyd["clipping"], lloyd["server_data"], lloyd["feddp_kmeans"]
    for name, each in {"client": settings, "lloyd": lloyd}.items():
        folder = tmp_path / name
        folder.mkdir()
        assert lake.run_job(each, folder).code == 0
        follower = lake.planned(each | {"recurring": {"previous": str(folder / "out")}})
        assert all("/lloyd_" in plan.path for plan in follower.plan.rounds)
        assert follower.plan.epsilon <= 2.0
        assert lake.run_fit(follower.config.model_dump(mode="json"), folder / "next").drift is not None
    model = model_from_tables(
        *(pq.read_table(folder / "out" / name) for name in ("centers.parquet", "releases.parquet"))
    )
    np.testing.assert_allclose(follower.initial.positions, model.centers, atol=1e-4)
    cold = lake.planned(lloyd)
    assert follower.initial.settings.rounds_share == 1.0
    assert follower.initial.radius == cold.initial.radius


def previous_of(result, planned):
    """A finished run as one to follow."""
    centers = result.model.centers
    names = tuple(f"x[{index}]" for index in range(centers.shape[1]))
    saved = SavedModel(
        folder="last",
        centers=centers,
        digest="0" * 64,
        feature_names=names,
        encoder=None,
        sizes=result.model.noisy_sizes,
    )
    return PreviousRun(
        run_id="last",
        saved=saved,
        model=result.model,
        rows=tuple(range(len(centers))),
        next_number=len(centers),
        unit=PrivacyUnit.RECORD,
        frame=frame_json(planned.initial.frame),
    )


@pytest.mark.parametrize("algorithm", ["feddp_kmeans", "dp_lloyd"])
def test_scores_of_runs_on_the_same_rows_are_standard_normal(tmp_path, algorithm):
    """150 pairs of runs that differ in their keys alone, 3 clusters that no noise can confuse: 450 scores each.

    Chance alone exceeds a KS distance of 0.125 with probability 1.5e-6; scores twice as wide are at 0.19.
    """
    points = lake.mixture(3000, means=3.0 * lake.MEANS)
    path = lake.write_lake(tmp_path / "lake", points)
    server = lake.write_server(tmp_path / "server.parquet", lake.mixture(60, 9, 3.0 * lake.MEANS))
    settings = lake.job(path, server, algorithm=algorithm, lloyd__steps=1)
    if algorithm == "dp_lloyd":
        settings |= {"dp_lloyd": {"domain": [-20.0, 20.0], "steps": 2}, "clipping": {}, "lloyd": {"steps": 0}}
    fit, block = lake.planned(settings), ClientBlock(points)
    centers, sizes = [], []
    for index in range(150):
        pair = [lake.finished(fit, block, index.to_bytes(31, "big") + bytes([half])) for half in (1, 2)]
        later = dataclasses.replace(fit, previous=previous_of(pair[0], fit))
        drift = compare_to_previous(later, pair[1].model)[1]
        centers.append(drift.scores)
        sizes.append(drift.size_scores)
    for scores in (np.concatenate(centers), np.concatenate(sizes)):
        assert scipy.stats.kstest(scores, "norm").statistic < 0.125
        assert scipy.stats.kstest(2.0 * scores, "norm").statistic > 0.14


def test_a_run_of_its_own_stays_as_it_is(series):
    result = FitResult(series.model("first"), None, "")
    fit = lake.planned(series.settings)
    assert compare_to_previous(fit, result.model) == (result.model, None, None)
    assert validated(series.settings).recurring is None


@pytest.fixture(scope="module")
def remembering(series):
    assert series.follow("night_1", "warm", recurring__memory=4).code == 0
    assert series.follow("night_2", "night_1", recurring__memory=4).code == 0
    return series


def test_one_thing_on_a_page_is_called_drift(remembering):
    """The distance of a memory from a shorter one; what changed since the last run has another title."""
    text = (remembering.folder / "night_2" / "report.html").read_text()
    assert "<h2>Since the last run</h2>" in text
    assert "<h2>Drift</h2>" not in text
    heads = [re.findall(r"<th scope=\"col\"[^>]*>([^<]*)<", each) for each in text.split("<table>")]
    assert [each[-1] for each in heads if each and each[0] == "cluster" and "drift score" in each] == ["drift score"]
    assert ["score", "size score"] in [[each for each in head if each.endswith("score")] for head in heads]


def test_centers_are_remembered_means(remembering):
    """Three runs with weights 9/16, 3/4 and 1, computed from their releases alone."""
    sums, counts = 0.0, 0.0
    for name, weight in (("warm", 9 / 16), ("night_1", 3 / 4), ("night_2", 1.0)):
        model = remembering.model(name)
        rows = remembering.json(name, "run.json")["clusters"]["released_rows"]
        noisy = last_means(model.releases, 3)
        origins = model.noisy_means - noisy.means[rows]
        sums = sums + weight * (noisy.sums[rows] + noisy.counts[rows][:, None] * origins)
        counts = counts + weight * noisy.counts[rows]
    centers = remembering.model("night_2").centers
    np.testing.assert_allclose(centers, sums / counts[:, None], rtol=1e-9)
    noise = [each["noise"] for each in remembering.json("night_2", "drift.json")["memory"]["clusters"]]
    alone = [each["movement_noise"] for each in remembering.json("night_2", "drift.json")["clusters"]]
    assert max(noise) < min(alone)


def test_a_memory_costs_nothing(remembering):
    spent = [remembering.json(name, "privacy.json") for name in ("warm", "night_2")]
    assert spent[0]["epsilon"] == spent[1]["epsilon"]
    assert "memory.parquet" in remembering.json("night_2", "run.json")["files"]
    assert "Memory of 3 runs" in (remembering.folder / "night_2" / "report.html").read_text()


def test_a_changed_memory_is_refused(remembering):
    path = remembering.folder / "night_1" / "memory.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    try:
        outcome = remembering.follow("night_3", "night_1", recurring__memory=4)
    finally:
        path.write_bytes(whole)
    assert outcome.code == 2
    assert "memory.parquet" in outcome.lines[-1]


def test_a_run_that_forgets_ends_the_memory(remembering):
    """A run without memory keeps none, so the next one begins with that run."""
    assert remembering.follow("forgets", "night_2").code == 0
    assert remembering.follow("begins", "forgets", recurring__memory=4).code == 0
    assert remembering.json("begins", "drift.json")["memory"]["runs"] == 2
