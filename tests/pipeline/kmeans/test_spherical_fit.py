"""Whole runs of spherical k-means with names: against its rounds on one block, under masks, and all it writes."""

import json
import pathlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.core.round import measure
from dapple_dp.transforms.rounds import shard_sums
from dapple_dp.transforms.rounds.row_cache import CACHES, WorkerLimits
from dapple_dp.transforms.tables.file_seal import seal_of
from tests.scenes import lake, ledgers

N_ROWS, CLIENT_ROWS, D = 1200, 10, 6
CENTERS = np.eye(D)[:3]
WORDS = ("cat", "dog", "bird", "the", "of")
FEW = {"steps": 3}
"""Rounds with masks of pairs are long: each of the 120 clients agrees with 30 others."""
MASKS = {"shared": {}, "pairwise": {"scheme": "pairwise", "threshold": 2, "corrupt": 0.0, "dropout": 0.01}}
"""Where few drop out, a client has few neighbors; graphs of more are in `pipeline/masked/test_masked_rounds.py`."""


class Place:
    """Texts of three topics, in clients; the terms of a text are its topic's, one for all, and one that is unknown."""

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        self.folder, self.topics = folder, np.arange(N_ROWS) // CLIENT_ROWS % 3
        points = CENTERS[self.topics] + rng.normal(0.0, 0.1, (N_ROWS, D))
        self.points = points / np.linalg.norm(points, axis=1, keepdims=True)
        self.codes = np.stack([self.topics, np.full(N_ROWS, 3)], axis=1)
        terms = [[WORDS[topic], "private", "the"] for topic in self.topics]
        self.clients, self.offsets = np.arange(N_ROWS) // CLIENT_ROWS, np.arange(0, N_ROWS + 1, CLIENT_ROWS)
        table = lake.table_of(self.points, self.clients).append_column("tags", pa.array(terms))
        self.data = str(folder / "rows")
        lake.write_files(folder / "rows", [table.slice(400 * index, 400) for index in range(3)], 200)
        lake.write_files(folder / "apart", [table.take(rng.permutation(N_ROWS))], 100)
        self.key, self.secret = lake.write_key(folder / "key"), lake.write_key(folder / "secret", bytes(range(51, 83)))
        (folder / "vocabulary.txt").write_text("\n".join(WORDS))

    def job(self, unit="client", **settings):
        return {
            "algorithm": "spherical",
            "data": {"path": self.data, "features": "x", "client_id": "client_id"},
            "n_clusters": 3,
            "privacy": {"unit": unit, "epsilon": 20.0, "delta": 1e-6},
            "clipping": {"client_rows": CLIENT_ROWS},
            "spherical": {"steps": 6},
            "names": {"column": "tags", "vocabulary": str(self.folder / "vocabulary.txt"), "most_per_row": 2},
            "justification": {"privacy.unit": "made for tests"},
            "key_uri": self.key,
            "seed": 3,
        } | settings

    def expected(self, job):
        found = np.hstack([self.points, self.codes])
        return lake.chain(lake.planned(job), ClientBlock(found, self.offsets)).model()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("topics"))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_run_equals_its_rounds_on_one_block(place, tmp_path, unit):
    # The third term of a row is not read; an unknown one among the first two would leave room for it.
    job = place.job(unit)
    result = lake.run_fit(job, tmp_path / "out")
    lake.assert_same(result.model, place.expected(job))
    assert 19.5 < result.privacy.epsilon <= 20.0


@pytest.mark.parametrize("unit", ["record", "client"])
def test_terms_are_read_for_names_alone(place, tmp_path, monkeypatch, unit):
    """Rounds of sums share the integers of features, which are kept without the terms beside them."""
    reads, read = [], shard_sums.read_blocks
    monkeypatch.setattr(shard_sums, "read_blocks", lambda shard, contract: reads.append(shard) or read(shard, contract))
    fit = lake.planned(place.job(unit))
    files = sorted(map(str, pathlib.Path(place.data).iterdir()))
    shards = [ShardRef(each, group, 200, 1, 0, each, seal_of(each).text) for each in files for group in (0, 1)]
    whole, state, found = ClientBlock(np.hstack([place.points, place.codes]), place.offsets), fit.initial, []
    with CACHES.held("topics"):
        sums = shard_sums.ShardSums(fit.contract, WorkerLimits(run="topics", cores=1, cache_bytes=1 << 20))
        for bound in fit.rounds:
            total = sums.sums(shards, bound, state)
            np.testing.assert_array_equal(total, measure(bound, whole, state.broadcast()))
            found.append(len(reads))
            state = bound.step(state, draw_release(lake.KEY, bound.plan, total))
    assert found == [6] * 6 + [12]


def test_clients_that_lie_apart_are_brought_together_with_their_terms(place, tmp_path):
    job = place.job()
    job["data"]["path"] = str(place.folder / "apart")
    found, expected = lake.run_fit(job, tmp_path / "out").model, lake.run_fit(place.job(), tmp_path / "whole").model
    lake.assert_same(found, expected)


def sparse(place, unit, **settings):
    """The job on rows that are their terms; from this seed's start it finds all three topics, whatever the noise."""
    encode = {"tags": {"kind": "terms", "words": list(WORDS), "width": 16}}
    job = place.job(unit, encode=encode, spherical={"steps": 12}, seed=4, **settings)
    return job | {"data": job["data"] | {"features": ["tags"]}}


@pytest.mark.parametrize("unit", ["record", "client"])
def test_rows_of_terms_equal_their_rounds_on_one_block(place, tmp_path, unit):
    job = sparse(place, unit)
    result = lake.run_fit(job, tmp_path / "out")
    rows = pq.read_table(place.data)
    found = lake.planned(job).contract.to_block(rows, "rows")
    assert found.points.shape == (N_ROWS, 16 + 2)
    lake.assert_same(result.model, lake.chain(lake.planned(job), found).model())


@pytest.mark.parametrize("scheme", MASKS)
def test_rows_of_terms_keep_names_under_masks_and_find_labels(place, tmp_path, scheme):
    job = sparse(place, "client", trust="masked", masked={"secret_uri": place.secret} | MASKS[scheme])
    assert lake.run_job(job, tmp_path).code == 0
    assert {row["term"] for row in pq.read_table(tmp_path / "out" / "names.parquet").to_pylist()} >= set(WORDS[:3])
    report = (tmp_path / "out" / "report.html").read_text()
    assert "mean nothing one by one" in report
    assert "What sets clusters apart" not in report
    assign = {"data": {"path": place.data, "features": ["tags"]}, "model": str(tmp_path / "out")}
    (tmp_path / "assign.yaml").write_text(yaml.safe_dump(assign))
    words = ("--config", str(tmp_path / "assign.yaml"), "--output", str(tmp_path / "labels"))
    assert lake.run_command("assign", *words).code == 0
    # Parts of the table are named after digests of paths.
    found = pq.read_table(tmp_path / "labels" / "assignments.parquet").sort_by(
        [("file", "ascending"), ("row", "ascending")]
    )
    labels = found["cluster"].to_numpy()
    assert sorted(len(np.unique(labels[place.topics == topic])) for topic in range(3)) == [1, 1, 1]
    assert len(np.unique(labels)) == 3


@pytest.mark.parametrize("scheme", MASKS)
@pytest.mark.parametrize("unit", ["record", "client"])
def test_masked_jobs_release_names(place, tmp_path, scheme, unit):
    masked = {"secret_uri": place.secret} | MASKS[scheme]
    job = place.job(unit, trust="masked", masked=masked, spherical=FEW)
    model = lake.run_fit(job, tmp_path / "out").model
    counts = model.releases[-1].decoded
    assert sorted(counts[:, :3].argmax(axis=1).tolist()) == [0, 1, 2]


def test_topics_charges_releases_names_reports_and_verifies(place, tmp_path):
    ledger = ledgers.new_ledger(tmp_path, ledgers.Limit(epsilon=21.0, delta=1e-5), "texts")
    job = place.job(ledger=ledger.path)
    job["data"]["name"] = "texts"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    words = ("--config", str(tmp_path / "job.yaml"))
    outcome = lake.run_command("topics", *words, "--output", str(tmp_path / "out"))
    assert outcome.code == 0, outcome.err
    assert "could not be drawn" not in outcome.err
    rows = pq.read_table(tmp_path / "out" / "names.parquet").to_pylist()
    assert sorted((row["cluster"], row["term"]) for row in rows if row["term"] != "the")
    assert {row["term"] for row in rows} == {"cat", "dog", "bird"}
    assert all(abs(row["noisy_count"] - 40) < 6 * row["count_stddev"] for row in rows)
    report = (tmp_path / "out" / "report.html").read_text()
    for text in ("What clusters are about", "found by Spherical k-means", "which terms each cluster has"):
        assert text in report
    assert "could not be written" not in report
    assert "names.parquet" in json.loads((tmp_path / "out" / "run.json").read_text())["files"]
    assert lake.run_command("verify", str(tmp_path / "out")).code == 0
    assert lake.run_command("topics", *words, "--output", str(tmp_path / "again")).code == 3
    planned = lake.run_command("plan", *words, "--clients", "120", "--width", str(D))
    assert planned.code == 0, planned.err
    assert "To name a cluster, a term needs" in planned.out


def test_labels_of_new_texts_follow_from_the_centers(place, tmp_path):
    assert lake.run_job(place.job(), tmp_path).code == 0
    job = {"data": {"path": place.data, "features": "x"}, "model": str(tmp_path / "out")}
    (tmp_path / "assign.yaml").write_text(yaml.safe_dump(job))
    outcome = lake.run_command(
        "assign", "--config", str(tmp_path / "assign.yaml"), "--output", str(tmp_path / "labels")
    )
    assert outcome.code == 0, outcome.err


def test_a_cold_follower_keeps_the_names_with_their_clusters(place, tmp_path):
    assert lake.run_job(place.job(), tmp_path).code == 0
    second = tmp_path / "second"
    second.mkdir()
    job = place.job(recurring={"previous": str(tmp_path / "out"), "warm_start": False}, seed=8)
    outcome = lake.run_job(job, second)
    assert outcome.code == 0, outcome.err
    before, after = (
        {row["cluster"]: row["term"] for row in pq.read_table(folder / "names.parquet").to_pylist()}
        for folder in (tmp_path / "out", second / "out")
    )
    assert before == after


def test_columns_of_numbers_and_one_term_per_row_in_a_spreadsheet(place, tmp_path):
    table = pa.table({f"f{index}": place.points[:, index] for index in range(D)})
    table = table.append_column("who", pa.array([f"p{each}" for each in place.clients]))
    table = table.append_column("tags", pa.array(np.array(WORDS)[place.topics]))
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    data = {"path": str(tmp_path / "rows.csv"), "features": [f"f{index}" for index in range(D)], "client_id": "who"}
    model = lake.run_fit(place.job(data=data), tmp_path / "out").model
    assert sorted(model.releases[-1].decoded[:, :3].argmax(axis=1).tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"column": "tag"}, "column 'tag' not found in .*; did you mean 'tags'"),
        ({"vocabulary": "nowhere.txt"}, "names.vocabulary must be a text file in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(place, tmp_path, changes, said):
    job = place.job()
    job["names"] |= changes
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code in (2, 5)
    assert "Traceback" not in outcome.err
    assert re.search(said, outcome.err), outcome.err


def test_a_vocabulary_among_the_private_files_is_refused(place, tmp_path):
    folder = tmp_path / "rows"
    lake.write_files(folder, [pq.read_table(place.folder / "rows")], 200)
    job = place.job()
    job["data"]["path"] = str(folder)
    job["names"]["vocabulary"] = str(next(folder.glob("*.parquet")))
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 2
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_gone_on_with_under_another_vocabulary(place, tmp_path):
    """The plan is the same for as many terms, and the same noise would be drawn for other counts."""
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("cat\ndog\nbird\n")
    job = place.job(ledger=str(tmp_path / "ledger.sqlite"))
    job["data"]["name"], job["names"]["vocabulary"] = "texts", str(vocabulary)
    limit = ("--ledger", job["ledger"], "--dataset", "texts", "--epsilon", "100", "--delta", "0.001")
    assert lake.run_command("ledger", "limit", *limit).code == 0
    assert lake.run_job(job, tmp_path, "--run_id", "r").code == 0
    released = (tmp_path / "out" / "releases.parquet").read_bytes()
    vocabulary.write_text("cat\ndog\nfish\n")
    again = lake.run_job(job, tmp_path, "--run_id", "r")
    assert (again.code, "was reserved with another config" in again.err) == (3, True)
    assert (tmp_path / "out" / "releases.parquet").read_bytes() == released


def test_prepared_rows_know_no_terms(place, tmp_path):
    data = {"path": place.data, "features": "x", "client_id": "client_id"}
    (tmp_path / "prepare.yaml").write_text(yaml.safe_dump({"data": data}))
    words = ("--config", str(tmp_path / "prepare.yaml"), "--output", str(tmp_path / "prepared"))
    assert lake.run_command("prepare", *words).code == 0
    job = place.job()
    job["data"]["path"] = str(tmp_path / "prepared")
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 2
    assert "'tags'" in outcome.err
