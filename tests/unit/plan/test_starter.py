"""The first job: it loads, or says what is missing; no value and no statistic of a table gets into it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from schemas.errors import ConfigError
from schemas.kmeans.fit_config import load_config
from tests.scenes import lake

TABLE = pa.table(
    {"age": [17, 4711], "hours": [1.5, 8.25], "who": ["Ann-7", "Bob-8"], "x\n- y: 1": ["Zuerich", "Basel"]}
)


@pytest.fixture
def place(tmp_path):
    pq.write_table(TABLE, tmp_path / "people.parquet")
    return tmp_path


def words(place, *more):
    return ["--data", str(place / "people.parquet"), "--output", str(place / "job.yaml"), *more]


@pytest.mark.parametrize(
    ("flags", "complete"),
    [
        (("--domain", "0,100"), True),
        ((), False),
        (("--algorithm", "central_tree", "--radius", "10"), True),
        (("--algorithm", "central_tree"), False),
        (("--algorithm", "feddp_kmeans", "--server_data", "public.parquet"), True),
        (("--client_id", "who", "--domain", "0,100", "--client_rows", "5"), True),
        (("--client_id", "who", "--domain", "0,100"), False),
    ],
)
def test_a_job_loads_or_says_what_is_missing(place, flags, complete):
    done = lake.run_command("init", *words(place, *flags))
    text = (place / "job.yaml").read_text()
    assert (done.code, json.loads(done.out.splitlines()[-1])["complete"]) == (0, complete)
    assert ("FILL IN" in text.partition("spends nothing.")[2]) is not complete
    assert yaml.safe_load(text)["data"]["features"] == ["age", "hours"]
    assert text.startswith("# yaml-language-server: $schema=fit.schema.json\n")
    if complete:
        assert load_config(text).max_clusters == 5
    else:
        with pytest.raises(ConfigError, match="must be"):
            load_config(text)


def test_no_value_and_no_statistic_is_written(place):
    lake.run_command("init", *words(place))
    text = (place / "job.yaml").read_text().replace(str(place), "")
    for value in ("4711", "8.25", "17", "Ann", "Bob", "Zuerich", "Basel"):
        assert value not in text


def test_a_column_cannot_write_settings(place):
    lake.run_command("init", *words(place))
    assert set(yaml.safe_load((place / "job.yaml").read_text())) == {
        "algorithm",
        "data",
        "n_clusters",
        "privacy",
        "dp_lloyd",
    }


def test_features_may_have_any_name_or_be_a_list(tmp_path):
    odd = "a: [b]\n# c, 'd' \"e\" " + 40 * "long "

    def job(schema, *more):
        pq.write_table(schema.empty_table(), tmp_path / "people.parquet")
        (tmp_path / "job.yaml").unlink(missing_ok=True)
        done = lake.run_command("init", *words(tmp_path, "--domain", "0,1", *more))
        return done, load_config((tmp_path / "job.yaml").read_text()) if done.code == 0 else None

    found = job(pa.schema({odd: pa.float32()}))[1]
    assert (found.data.features, found.dp_lloyd.domain) == ((odd,), {odd: (0.0, 1.0)})
    found = job(pa.schema({"x": pa.list_(pa.float32(), 3), "id": pa.string()}))[1]
    assert (found.data.features, found.dp_lloyd.domain) == ("x", (0.0, 1.0))
    assert "--data must have a column of numbers" in job(pa.schema({"id": pa.string()}))[0].err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--algorithm", "kmeans"), "--algorithm must be one of dp_lloyd, central_tree, feddp_kmeans"),
        (("--client_id", "nobody"), "--client_id must be a column, got 'nobody'"),
        (("--domain", "0;1"), "a bound must be a number, got '0;1'"),
        (("--client_rows", "-3"), "a number of rows must be whole and at least 1, got '-3'"),
        (("--data", "nowhere.parquet"), "data.path"),
    ],
)
def test_wrong_flags_are_refused(place, flags, said):
    done = lake.run_command("init", *words(place, *flags))
    assert (done.code, said in done.err, (place / "job.yaml").exists()) == (2, True, False)


def test_a_file_that_is_there_stays(place):
    (place / "job.yaml").write_text("mine")
    done = lake.run_command("init", *words(place))
    assert (done.code, (place / "job.yaml").read_text()) == (2, "mine")
    assert "--output must be a new file" in done.err
    (place / "job.yaml").unlink()
    (place / "job.yaml").symlink_to(place / "elsewhere.yaml")
    assert lake.run_command("init", *words(place)).code == 2
    assert not (place / "elsewhere.yaml").exists()
