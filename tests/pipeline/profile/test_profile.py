"""The profile job: near the truth where noise is small, silent about the rare, bounded by unit, and quiet."""

import json
import logging
import re

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp import api
from dapple_dp.pipelines.profile.job import plan_profile
from dapple_dp.pipelines.profile.profile_page import ProfileView, render
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import PROFILE_SCHEMA, clusters_of
from dapple_dp.transforms.files.saved_model import load_model
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.profile.measure_clusters import SUMS, MeasureClusters
from dapple_dp.transforms.tables.read import ListShards
from tests.scenes import lake, ledgers
from tests.scenes.models import assert_job_refused, run_model_job, write_model

N_ROWS = 3000
REPLAY = ("--direct_runner_bundle_repeat=2",)
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
FILES = {"profile.parquet", "privacy.json", "deployment.yaml", "report.html"}
JOBS = np.array(["clerk", "smith", "farmer", "miller"])


class Desk:
    """A model and a lake of people whose ages and jobs depend on their cluster; ten rows per client, in any order."""

    def __init__(self, folder):
        rng = np.random.default_rng(3)
        self.folder = folder
        self.points = lake.mixture(N_ROWS, seed=1)
        self.labels = NearestCenters.of(lake.MEANS).labels(self.points)
        self.clients = rng.permutation(N_ROWS) // 10
        self.age = 20.0 + 20.0 * self.labels + rng.normal(0.0, 3.0, N_ROWS)
        self.job = JOBS[self.labels + (rng.random(N_ROWS) < 0.3)]
        self.job[17] = "astronaut"
        self.own = rng.random(N_ROWS) < 0.6
        self.model = write_model(folder / "fit", lake.MEANS)
        self.path = self.write("lake", self.table())

    def table(self):
        table = lake.table_of(self.points, self.clients)
        columns = {"age": pa.array(self.age), "job": pa.array(self.job).dictionary_encode(), "own": pa.array(self.own)}
        for name, column in columns.items():
            table = table.append_column(name, column)
        return table

    def write(self, name, table):
        return lake.write_files(self.folder / name, [table.slice(0, 1100), table.slice(1100)], 400)

    def settings(self, unit="record", path=None, epsilon=200.0, **profile):
        rows = {"max_rows_per_client": 10} if unit == "client" else {}
        return {
            "model": self.model,
            "data": {"path": path or self.path, "features": "x", "client_id": "client_id"},
            "privacy": {"unit": unit, "epsilon": epsilon, "delta": 1e-6},
            "profile": {
                "numeric": {"age": {"lower": 0, "upper": 100, "percentiles": [25, 50, 75]}},
                "categorical": {"job": {"values": None}, "own": {"values": [False, True]}},
            }
            | rows
            | profile,
        }

    def run(self, *flags, **options):
        config = ProfileConfig.model_validate(self.settings(**options))
        return api.profile(config, beam_options(flags))

    def sums(self, **options):
        """Exact sums by path, without noise."""
        planned = plan_profile(ProfileConfig.model_validate(self.settings(**options)), load_model(self.model))
        plan, key = planned.params.plan, lake.write_key(self.folder / "sums.key")
        out = self.folder / "sums"
        source = lake.staged(planned.source, self.folder / "listings")
        with beam.Pipeline(options=beam_options([])) as root:
            shards = root | ListShards(source=source, contract=planned.params.contract)
            measured = shards | MeasureClusters(params=planned.params, key_uri=key)
            _ = measured[SUMS] | beam.Map(save, str(out))
        total, start, found = np.load(f"{out}.npy"), 0, {}
        for event in plan.sums:
            stop = start + int(np.prod(event.shape))
            found[event.path] = total[start:stop].reshape(event.shape)
            start = stop
        return found


def save(total, path):
    np.save(path, total)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def by_record(desk):
    return run_model_job("profile", desk.settings(), desk.folder, "--output", str(desk.folder / "by_record"))


@pytest.fixture(scope="module")
def by_client(desk):
    return desk.run(unit="client")


def check_near_the_truth(desk, table, *, clients):
    # At epsilon 200 the noise of rows has stddev 0.4 or less, that of clients 4: tolerances are ten of them.
    for cluster, found in enumerate(clusters_of(table)):
        inside = desk.labels == cluster
        assert found["sizes"]["count"] == pytest.approx(inside.sum(), abs=40 if clients else 4)
        assert found["numeric"]["age"]["mean"] == pytest.approx(desk.age[inside].mean(), abs=2.0 if clients else 0.5)
        truth = np.percentile(desk.age[inside], [25, 50, 75])
        percentiles = [found["numeric"]["age"][f"p{each}"] for each in (25, 50, 75)]
        np.testing.assert_allclose(percentiles, truth, atol=3.0 if clients else 0.5)
        for column, values in (("job", JOBS), ("own", [False, True])):
            names = {str(each).lower(): getattr(desk, column) == each for each in values}
            for name, mask in names.items():
                truth = len(set(desk.clients[inside & mask])) if clients else (inside & mask).sum()
                if truth > 20:
                    assert found["categorical"][column][name] == pytest.approx(truth, abs=15 if clients else 5)


def test_a_profile_of_rows_is_near_the_truth(desk, by_record):
    assert (by_record.code, by_record.lines[1][:11]) == (0, "dapple: run"), by_record.err
    table = pq.read_table(desk.folder / "by_record" / "profile.parquet")
    assert table.schema == PROFILE_SCHEMA
    check_near_the_truth(desk, table, clients=False)


def test_a_profile_of_clients_is_near_the_truth(desk, by_client):
    check_near_the_truth(desk, by_client.profile, clients=True)
    for cluster, found in enumerate(clusters_of(by_client.profile)):
        truth = len(set(desk.clients[desk.labels == cluster]))
        assert found["sizes"]["clients"] == pytest.approx(truth, abs=10)


def test_a_value_of_one_person_is_not_released(desk, by_record, by_client):
    tables = [pq.read_table(desk.folder / "by_record" / "profile.parquet"), by_client.profile]
    for table in tables:
        values = table.column("value").to_pylist()
        assert "clerk" in values
        assert "astronaut" not in values


def test_the_outputs_state_the_guarantee(desk, by_record):
    folder = desk.folder / "by_record"
    assert {path.name for path in folder.iterdir()} == {*FILES, "run.json"}
    privacy = json.loads((folder / "privacy.json").read_text())
    summary = json.loads(by_record.out)
    assert (privacy["epsilon"], privacy["delta"]) == (summary["epsilon"], summary["delta"]) == (200.0, 1e-6)
    assert (privacy["unit"], privacy["neighboring_relation"]) == ("record", "add_or_remove_one")
    assert len(privacy["events"]) == 6
    manifest = json.loads((folder / "run.json").read_text())
    assert set(manifest["files"]) == FILES
    assert (manifest["job"], manifest["sampling_rate"]) == ("profile", 1.0)
    assert not list(desk.folder.glob("*partial*"))


def test_the_report_shows_what_was_released_and_of_which_run(desk, by_record):
    folder = desk.folder / "by_record"
    text = (folder / "report.html").read_text()
    assert by_record.lines[-1].endswith("by_record/report.html")
    assert "could not be" not in text
    assert re.findall(r'<section id="(\w+)"', text) == [
        "guarantee",
        "warnings",
        "clusters",
        "means",
        "values",
        "reading",
    ]
    for words in (
        json.loads(by_record.out)["run_id"],
        "record: one row",
        "Mean of age",
        "clerk",
        "Checks of this report",
    ):
        assert words in text
    assert "Epsilon 200 is high" in text
    assert text.count("<svg") == text.count("<desc>") == 2
    assert 'class="badge evaluation"' not in text.split("<main>")[1].split("</main>")[0]
    assert "astronaut" not in text
    assert not re.search(r"\bnan\b|\binf\b", re.sub(r"<style>.*?</style>", "", text, flags=re.S))
    exact = {f"{value:.6g}" for value in desk.age}
    assert not [value for value in exact if len(value) >= 6 and f">{value}<" in text]


def test_the_report_of_clients_leaves_out_what_may_be_empty(desk, by_client):
    config = ProfileConfig.model_validate(desk.settings(unit="client"))
    plan = plan_profile(config, load_model(desk.model)).params.plan
    rows = by_client.profile.to_pylist()
    for row in rows:
        if row["cluster"] == 1 and row["column"] is None:
            row["noisy_value"] = -1.0
    table = pa.Table.from_pylist(rows, schema=PROFILE_SCHEMA)
    view = ProfileView(config=config, plan=plan, table=table)
    assert view.small == [1]
    text = render(view).html
    assert "Cluster 1: a noisy size below two noise stddevs" in text
    assert "(1)" in text
    assert not re.search(r'<th scope="row">1</th>', text)
    assert "client: all rows of one client" in text
    assert "no ledger" in text


def test_the_registry_entry_has_the_sections_of_a_fit(desk, by_record):
    entry = yaml.safe_load((desk.folder / "by_record" / "deployment.yaml").read_text())
    sections = {"basic", "dp_variant", "privacy_loss", "deployment_model", "implementation", "administrative"}
    assert set(entry["deployment"]) == sections
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 200.0, "delta": 1e-6}
    assert "3 clusters of a released model" in entry["deployment"]["basic"]["description"]
    assert not re.search(r"dapple unknown|PipelineDP unknown", str(entry))


def test_the_log_shows_progress_only(desk, by_record, caplog):
    assert [line.split(":")[1][:5] for line in by_record.lines] == [" warn", " run ", " plan", " the ", " done"]
    caplog.set_level(logging.INFO)
    desk.run(sampling_rate=0.9)
    told = " ".join(record.getMessage() for record in caplog.records)
    counts = np.bincount(desk.labels)
    # Addresses of objects are shown, whose hexadecimal digits are any.
    assert not any(re.search(rf"(?<![\da-f]){exact}(?![\da-f])", told) for exact in counts)


def test_sums_of_rows_are_exact(desk):
    found = desk.sums()
    np.testing.assert_array_equal(found["profile/sizes/count"], np.bincount(desk.labels))
    own = [[((desk.labels == each) & (desk.own == value)).sum() for value in (False, True)] for each in range(3)]
    np.testing.assert_array_equal(found["profile/histograms/own"], own)
    units = np.trunc((desk.age - 50.0) / 50.0 * 2**20)
    np.testing.assert_array_equal(found["profile/means/age"], np.bincount(desk.labels, weights=units))


def test_clients_are_counted_once(desk):
    found = desk.sums(unit="client")
    np.testing.assert_array_equal(found["profile/sizes/count"], np.bincount(desk.labels))
    truth = [len(set(desk.clients[desk.labels == each])) for each in range(3)]
    np.testing.assert_array_equal(found["profile/sizes/clients"], truth)


def test_a_large_client_moves_counts_by_no_more_than_the_bound(desk):
    """Ten rows of a client count, and the others have ten, so nothing of theirs may change."""
    n_rows = 10_000
    giant = {
        "x": lake.table_of(np.tile(lake.MEANS[:1], (n_rows, 1))).column("x"),
        "client_id": pa.array(np.full(n_rows, 123_456)),
        "age": pa.array(np.full(n_rows, 100.0)),
        "job": pa.array(np.full(n_rows, "clerk")).dictionary_encode(),
        "own": pa.array(np.full(n_rows, True)),
    }
    whole, extra = desk.table(), pa.table(giant)
    tables = [whole.slice(0, 900), extra.slice(0, 6000), extra.slice(6000), whole.slice(900)]
    path = lake.write_files(desk.folder / "giant", tables, 400)
    one, other = desk.sums(unit="client", path=path), desk.sums(unit="client")
    moves = {name: (one[name] - other[name]).tolist() for name in one}
    assert moves == {
        "profile/sizes/count": [10, 0, 0],
        "profile/sizes/clients": [1, 0, 0],
        "profile/means/age": [10 * 2**20, 0, 0],
        "profile/histograms/own": [[0, 1], [0, 0], [0, 0]],
    }


def test_a_bound_keeps_as_many_rows_of_every_client(desk):
    found = desk.sums(unit="client", max_rows_per_client=3)
    assert found["profile/sizes/count"].sum() == 3 * 300


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_sample_is_enough_for_percentiles_and_leaves_counts_alone(desk, by_client, unit):
    result = desk.run(unit=unit, sampling_rate=0.5)
    assert result.privacy == (by_client if unit == "client" else desk.run(unit=unit)).privacy
    for cluster, found in enumerate(clusters_of(result.profile)):
        inside = desk.labels == cluster
        assert found["sizes"]["count"] == pytest.approx(inside.sum(), abs=4 if unit == "record" else 40)
        # The median of about 500 rows of stddev 3 has stddev 0.17.
        assert found["numeric"]["age"]["p50"] == pytest.approx(np.median(desk.age[inside]), abs=1.5)


def test_a_sample_is_of_units_at_the_public_rate(desk):
    """Rows of a client are in the sample all or none."""
    planned = plan_profile(
        ProfileConfig.model_validate(desk.settings(unit="client", sampling_rate=0.3)), load_model(desk.model)
    )
    key, out = lake.write_key(desk.folder / "sampled.key"), desk.folder / "sampled"
    source = lake.staged(planned.source, desk.folder / "listings")
    with beam.Pipeline(options=beam_options([])) as root:
        shards = root | ListShards(source=source, contract=planned.params.contract)
        measured = shards | MeasureClusters(params=planned.params, key_uri=key)
        ages = measured["profile/percentiles/age"] | beam.Values() | beam.combiners.ToList()
        _ = ages | beam.Map(save, str(out))
    sampled = np.isin(desk.age, np.load(f"{out}.npy"))
    per_client = np.bincount(desk.clients, weights=sampled)
    assert set(per_client.tolist()) == {0.0, 10.0}
    assert abs((per_client > 0).mean() - 0.3) < 0.16  # six stddevs


def with_holes(desk, name):
    """The lake with a null, a NaN and an infinity among the ages, and a null elsewhere."""
    table = desk.table()
    age, own = desk.age.tolist(), desk.own.tolist()
    age[:3], own[5] = [None, float("nan"), float("inf")], None
    for column, values in {"age": age, "own": own}.items():
        holed = pa.array(values, from_pandas=False)
        table = table.set_column(table.column_names.index(column), column, holed)
    return desk.write(name, table)


def test_invalid_rows_are_dropped_from_everything(desk):
    path = with_holes(desk, "holes")
    settings = desk.settings(path=path)
    settings["data"]["on_invalid_rows"] = "drop"
    table = api.profile(ProfileConfig.model_validate(settings)).profile
    assert np.isfinite(table.column("noisy_value").to_numpy()).all()
    counts = [found["sizes"]["count"] for found in clusters_of(table)]
    assert sum(counts) == pytest.approx(N_ROWS - 4, abs=3)
    check_near_the_truth(desk, table, clients=False)


def test_invalid_rows_stop_the_job_without_a_value(desk):
    message = r"column 'age' of .*part-00.*, row group 0 must hold finite numbers only, got a null, NaN or infinity; "
    with pytest.raises(InputError, match=message):
        desk.run(path=with_holes(desk, "holes_fail"))


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (
            {"numeric": {"aeg": {"lower": 0, "upper": 1}}},
            r"column 'aeg' not found in .*; did you mean 'age'",
        ),
        (
            {"numeric": {"job": {"lower": 0, "upper": 1}}, "categorical": {}},
            r"column 'job' of .* must be numeric, got string; describe it in",
        ),
        (
            {"categorical": {"age": {}}, "numeric": {}},
            r"column 'age' of .* must hold strings, integers or booleans, got double",
        ),
    ],
)
def test_columns_that_cannot_be_described(desk, profile, message):
    with pytest.raises(InputError, match=message):
        desk.run(**profile)


def test_null_clients_stop_the_job(desk):
    table = desk.table()
    ids = pa.array([None, *desk.clients[1:].tolist()])
    path = desk.write("nobody", table.set_column(table.column_names.index("client_id"), "client_id", ids))
    with pytest.raises(InputError, match=r"column 'client_id' of .* must hold a value in every row, got a null"):
        desk.run(unit="client", path=path)
    assert desk.run(path=path).privacy.epsilon == 200.0


def test_a_sampled_copy_is_refused_for_rows(desk, tmp_path):
    sampled = lake.job(desk.path, None, data__client_id="client_id", data__max_rows_per_client=3)
    done = run_model_job("prepare", sampled, tmp_path)
    assert done.code == 0, done.err
    sizes_alone = {"path": str(tmp_path / "prepare"), "numeric": {}, "categorical": {}}
    with pytest.raises(ConfigError, match=r"data\.path must hold all rows for privacy\.unit record, got a folder"):
        desk.run(**sizes_alone)
    found = clusters_of(desk.run(unit="client", **sizes_alone).profile)
    assert sum(each["sizes"]["count"] for each in found) == pytest.approx(900, abs=60)


def test_noise_of_small_budgets(desk):
    """Laplace noise for percentiles, and counts that may be anything; the table is whole all the same."""
    table = desk.run(epsilon=0.05).profile
    assert (
        table.filter(pa.array([each == "percentile" for each in table.column("statistic").to_pylist()])).num_rows == 9
    )
    assert table.column("noise_stddev").to_pylist()[0] > 30


def test_errors_of_the_command(desk, tmp_path):
    wrong = desk.settings()
    wrong["data"]["features"] = "y"
    assert_job_refused("profile", wrong, tmp_path, "data.features must be the 4 features")


def test_model_without_rows_in_a_cluster(desk, tmp_path):
    model = write_model(tmp_path / "fit", np.vstack([lake.MEANS, np.full((1, 4), 1e6)]))
    settings = desk.settings() | {"model": model}
    found = clusters_of(api.profile(ProfileConfig.model_validate(settings)).profile)[3]
    assert abs(found["sizes"]["count"]) < 5
    assert 0.0 <= found["numeric"]["age"]["mean"] <= 100.0
    assert set(found["categorical"]) == {"own"}


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize(
    "flags",
    [("--direct_runner_bundle_repeat=2",), ("--direct_num_workers=2", "--direct_running_mode=multi_processing")],
)
def test_replays_and_processes(desk, unit, flags):
    check_near_the_truth(desk, desk.run(*flags, unit=unit).profile, clients=unit == "client")


def test_a_second_call_of_a_run_that_its_ledger_knows_is_done(desk, tmp_path):
    ledger = ledgers.new_ledger(tmp_path, ledgers.basic_limit(300.0, 1e-3), "people")
    settings = desk.settings() | {"ledger": str(tmp_path / "ledger.sqlite")}
    settings["data"] |= {"name": "people"}
    first = run_model_job("profile", settings, tmp_path, "--run_id", "r")
    before = {path: path.read_bytes() for path in (tmp_path / "profile").iterdir()}
    again = run_model_job("profile", settings, tmp_path, "--run_id", "r")
    assert (first.code, again.code, again.out) == (0, 0, first.out), first.err + again.err
    assert "dapple: run r is complete: nothing is read or charged" in again.lines
    assert {path: path.read_bytes() for path in (tmp_path / "profile").iterdir()} == before
    settings["profile"]["numeric"]["age"]["upper"] = 90
    assert run_model_job("profile", settings, tmp_path, "--run_id", "r").code == 2
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit"]
