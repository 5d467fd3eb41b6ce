"""Whatever says that it is shuffled holds as many reports as its guarantee needs; `encode` counts as `shuffle` does.

Sixty clients once left `encode` as a shuffled batch of a thousand, at epsilon 1 where they had 4.66.
"""

import json
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.reports import encode, shuffle
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import lake, ledgers
from tests.scenes.reports import settings

pytestmark = pytest.mark.slow

VARIANTS = ("nested", "points", "privunit")


def run(tmp_path, n_clients, variant="nested", min_batch=1000, **changes):
    """`encode` in mode shuffle; the outcome, and its folder."""
    path = lake.write_lake(tmp_path / "lake", lake.mixture(n_clients), np.arange(n_clients))
    job = settings(path, privacy={"unit": "client", "epsilon": 1.0, "delta": 1e-4}, tree__depth=2, **changes)
    job["reports"] = {"mode": "shuffle", "variant": variant, "min_batch": min_batch}
    return run_encode(tmp_path, job)


def run_encode(tmp_path, job):
    (tmp_path / "encode.yaml").write_text(yaml.safe_dump(job))
    folder = tmp_path / "encoded"
    words = ("--config", str(tmp_path / "encode.yaml"), "--output", str(folder), "--run_id", "one")
    return lake.run_command("encode", *words), folder


def refused_batch(tmp_path, path, n_reports):
    job = settings(path, privacy={"unit": "client", "epsilon": 1.0, "delta": 1e-4})
    outcome, _ = run_encode(tmp_path, job | {"reports": {"mode": "shuffle", "min_batch": 1000}})
    assert (outcome.code, f"got {n_reports};" in outcome.err) == (2, True), outcome.err


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_clients", [1, 60, 999])
def test_a_lake_with_too_few_clients_leaves_nothing(tmp_path, variant, n_clients):
    outcome, folder = run(tmp_path, n_clients, variant)
    assert outcome.code == 2
    assert f"a shuffled batch must have at least 1000 reports, got {n_clients}" in outcome.err
    assert not folder.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("encoded")]


def test_a_lake_with_enough_clients_is_shuffled(tmp_path):
    outcome, folder = run(tmp_path, 1000)
    assert outcome.code == 0, outcome.err
    assert json.loads((folder / "run.json").read_text())["shuffled"] is True
    assert pq.read_table(folder / "reports.parquet").num_rows == 1000


def test_rows_of_one_client_do_not_fill_a_batch(tmp_path):
    """A thousand rows of 500 clients are 500 reports."""
    path = lake.write_lake(tmp_path / "lake", lake.mixture(1000), np.arange(1000) // 2)
    refused_batch(tmp_path, path, 500)


def test_one_id_stored_twice_does_not_fill_a_batch(tmp_path):
    """The same clients in two files are one report each."""
    tables = [lake.table_of(lake.mixture(600), np.arange(600)), lake.table_of(lake.mixture(600), np.arange(600))]
    path = lake.write_files(tmp_path / "lake", tables)
    refused_batch(tmp_path, path, 600)


def test_a_refused_batch_costs_nothing(tmp_path):
    ledger = ledgers.new_ledger(tmp_path, Limit(epsilon=2.0, delta=1e-3))
    ledger.set_limit("homes", Limit(epsilon=2.0, delta=1e-3, basic_epsilon=2.0, basic_delta=1e-3))
    outcome, _ = run(tmp_path, 60, ledger=ledger.path, data__name="homes")
    assert outcome.code == 2, outcome.err
    assert ledgers.kinds(ledger)[-3:] == ["reserve", "start", "void"]


def test_in_mode_local_any_number_is_sent_and_promised_locally(tmp_path):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(60), np.arange(60))
    (tmp_path / "encode.yaml").write_text(yaml.safe_dump(settings(path)))
    words = ("--config", str(tmp_path / "encode.yaml"), "--output", str(tmp_path / "encoded"))
    outcome = lake.run_command("encode", *words)
    assert outcome.code == 0, outcome.err
    privacy = json.loads((tmp_path / "encoded" / "privacy.json").read_text())
    assert (privacy["trust"], privacy["delta"]) == ("local", 0.0)


def test_every_job_that_says_shuffled_passes_the_same_count():
    """A new job that writes shuffled reports without counting them is caught by its imports."""
    folder = pathlib.Path(encode.__file__).parent
    writers = {path.stem for path in folder.glob("*.py") if "stage_reports(" in path.read_text()} - {"outputs"}
    assert writers == {"encode", "shuffle"}
    assert encode.shuffled_batch is shuffle.shuffled_batch
    for module in (encode, shuffle):
        assert "written_files" not in vars(module) or module is shuffle
