"""Odd words, damaged files and noisy numbers against tiers, buffered columns and names: refused, or no name."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config
from dapple_dp.schemas.reports.config import load_decode_config, load_shuffle_config
from dapple_dp.transforms.kmeans.spherical import names
from tests.scenes.lake import run_command

TERMS = tuple(f"term {index}" for index in range(50))


def job(path: str, **more):
    return {
        "algorithm": "dp_lloyd",
        "data": {"path": path, "features": "x"},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": [-8.0, 8.0]},
    } | more


@pytest.mark.parametrize("word", ["true", "yes", "True", 1, [True], None])
def test_nothing_but_true_lets_a_job_be_experimental(word):
    text = yaml.safe_dump(job("lake", algorithm="dp_medians", experimental=word))
    with pytest.raises(ConfigError, match="experimental must be true or false"):
        load_config(text)


@pytest.mark.parametrize(
    ("load", "section"), [(load_decode_config, {"path": "reports"}), (load_shuffle_config, {"arrived": "reports"})]
)
def test_a_job_on_reports_that_is_experimental_needs_no_settings_of_encode(load, section):
    assert load(yaml.safe_dump({"experimental": True, "reports": section})).job is None


@pytest.mark.parametrize("place", ["first header", "later headers"])
def test_a_column_that_is_damaged_behind_the_first_buffer_is_refused_and_nothing_is_left(tmp_path, place):
    """A column of a file on a disk is read bit by bit, so a part of it may have been added up already."""
    points = np.random.default_rng(0).normal(size=(200_000, 4)).astype(np.float32)
    file = tmp_path / "lake" / "a.parquet"
    file.parent.mkdir()
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 4)})
    pq.write_table(table, file, row_group_size=len(points), compression="none", use_dictionary=False)
    content, start = bytearray(file.read_bytes()), pq.ParquetFile(file).metadata.row_group(0).column(0).data_page_offset
    n_bytes, start = (64, start) if place == "first header" else (1_200_000, start + len(content) // 2)
    content[start : start + n_bytes] = b"\xff" * n_bytes
    file.write_bytes(content)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(str(file.parent))))
    outcome = run_command("fit", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out"))
    assert outcome.code == 2
    assert "a.parquet" in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("sizes", [[900.0], [-5.0, -3.0], [0.0, 0.0], [-1.0, 1e6]], ids=str)
def test_no_name_follows_from_sizes_that_leave_every_share_possible(sizes):
    """One cluster has all that have a term; of two whose sizes are noise, either may have all units."""
    counts = np.random.default_rng(1).normal(scale=100.0, size=(len(sizes), len(TERMS)))
    counts[-1] += 500.0
    assert names.named(counts, 100.0, np.array(sizes), 100.0, TERMS).terms == ()
