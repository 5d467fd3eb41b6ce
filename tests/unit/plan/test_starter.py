"""The first job: it loads, or says what is missing; no value and no statistic of a table gets into it."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.plan import proposal, starter
from dapple_dp.pipelines.plan.command_line import TOOLS, check_flags
from dapple_dp.pipelines.plan.proposal import Proposal
from dapple_dp.pipelines.run.flags import read
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config
from dapple_dp.transforms.files.formats.csv_guess import Look
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
    assert (done.code, done.out.splitlines()[-1].endswith(f'"complete": {str(complete).lower()}}}')) == (0, True)
    assert ("FILL IN" in text.partition("spends nothing.")[2]) is not complete
    assert yaml.safe_load(text)["data"]["features"] == ["age", "hours"]
    assert text.startswith("# yaml-language-server: $schema=fit.schema.json\n")
    if complete:
        assert load_config(text).max_clusters == 5
    else:
        with pytest.raises(ConfigError, match=r"must be|is required"):
            load_config(text)


def test_a_column_of_that_name_is_nothing_to_fill_in(place):
    pq.write_table(pa.table({"FILL IN": [1.0], "what says FILL IN.": ["x"]}), place / "people.parquet")
    lake.run_command("init", *words(place, "--domain", "0,1"))
    assert "# Next: `dapple plan --config` this file" in (place / "job.yaml").read_text()


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


def text_of(given, schema):
    """The job of flags and a schema, without a file."""
    proposal = Proposal.of(schema, given.client_id)
    starter._questions(given, proposal, Look(schema=schema, rows=schema.empty_table()))
    return starter.job_text(given, proposal, {}, missing=False)


def test_features_may_have_any_name_or_be_a_list(place):
    def given():
        return check_flags(read(TOOLS["init"], words(place, "--domain", "0,1"))[0])

    for odd in (
        "a: [b]\n# c, 'd' \"e\" " + 40 * "long ",
        "\x1b[2J",
        "yes",
        "2026-01-01",
        "\u2028",
        "\U0001f600",
        "\x7f~",
    ):
        found = load_config(text_of(given(), pa.schema({odd: pa.float32(), "b": pa.int8()})))
        assert found.data.features == (odd, "b")
        assert found.dp_lloyd.domain == {odd: (0.0, 1.0), "b": (0.0, 1.0)}
    found = load_config(text_of(given(), pa.schema({"x": pa.list_(pa.float32(), 3), "id": pa.string()})))
    assert (found.data.features, found.dp_lloyd.domain) == ("x", (0.0, 1.0))
    with pytest.raises(ConfigError, match=r'--data must have a column of numbers.*; column "id" is an id'):
        Proposal.of(pa.schema({"id": pa.string()}), None)


FEATURES = [
    "age",
    "income",
    "grid",
    "paid",
    "humidity",
    "education_num",
    "response_time",
    "price_index",
    "x1",
    "no_of_rooms",
]
IDS = ["id", "ID", "customer_id", "customerId", "userid", "id_person", "uuid", "zip", "zip_code", "order_no", "index"]
IDS += ["__index_level_0__", "Unnamed: 0", "PersonID"]
DATES = ["date", "birth_date", "event_ts", "createdTimestamp", "dt"]


def test_ids_and_dates_are_recognized_by_name_and_type():
    numbers = {name: pa.int64() for name in (*FEATURES, *IDS, *DATES)}
    others = {
        "when": pa.timestamp("us"),
        "day": pa.date32(),
        "lasts": pa.duration("s"),
        "c": pa.dictionary(pa.int8(), pa.string()),
        "n": pa.dictionary(pa.int8(), pa.float64()),
        "is_id": pa.bool_(),
        "s": pa.struct({"a": pa.int8()}),
        "v": pa.list_(pa.float32()),
        "w": pa.list_(pa.string()),
        "a*": pa.int8(),
        "": pa.int8(),
    }
    found = Proposal.of(pa.schema(numbers | others), None)
    assert found.features == (*FEATURES, "n", "is_id")
    assert found.booleans == {"is_id"}
    assert {name for name, why in found.left_out.items() if why == proposal.ID} == set(IDS)
    assert {name for name, why in found.left_out.items() if why.startswith(proposal.DATE)} == {
        *DATES,
        "when",
        "day",
        "lasts",
    }
    assert set(found.left_out) == {*numbers, *others} - set(found.features)


def test_a_column_of_client_ids_is_no_feature_and_not_left_out():
    found = Proposal.of(pa.schema({"x": pa.int8(), "who": pa.int64(), "visit_id": pa.int64()}), "who")
    assert (found.features, found.left_out) == (("x",), {"visit_id": proposal.ID})


def test_what_the_comments_say_of_text_makes_a_job(place):
    """A vocabulary beside intervals: the comment shows the only way in which both go together."""
    lake.run_command("init", *words(place, "--domain", "0,100"))
    text = (place / "job.yaml").read_text()
    said = [line.removeprefix("# ") for line in text.splitlines() if line.startswith('# encode: {"who"')]
    encode = yaml.safe_load(said[0].replace("...", "Ann, Bob"))["encode"]
    (bounds,) = re.findall(r"as (\{kind: bounds.*?\}), and domain is (.*?)\.", text)
    job = yaml.safe_load(text)
    job["data"]["features"].append("who")
    job["encode"] = encode | dict.fromkeys(("age", "hours"), yaml.safe_load(bounds[0]))
    with pytest.raises(ConfigError, match="if there is an encode section"):
        load_config(yaml.safe_dump(job))
    job["dp_lloyd"]["domain"] = yaml.safe_load(bounds[1])
    assert load_config(yaml.safe_dump(job)).encodings.keys() == {"who", "age", "hours"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--algorithm", "kmeans"), "--algorithm must be one of dp_lloyd, central_tree, feddp_kmeans"),
        (("--client_id", "nobody"), '--client_id must be a column, got "nobody"; columns: "age", "hours"'),
        (("--domain", "0;1"), "a bound must be a number, got '0;1'"),
        (("--domain", "1,0"), "an interval must be two finite numbers, the smaller one first, got '1,0'"),
        (("--radius", "inf", "--algorithm", "central_tree"), "a radius must be a finite number above 0, got 'inf'"),
        (("--client_rows", "-3"), "a number of rows must be whole and at least 1, got '-3'"),
        (("--client_rows", "0"), "a number of rows must be whole and at least 1, got '0'"),
    ],
)
def test_wrong_flags_are_refused(place, flags, said):
    done = lake.run_command("init", *words(place, *flags))
    assert (done.code, said in done.err, (place / "job.yaml").exists()) == (2, True, False)


def test_missing_data_are_reported_as_missing(place):
    done = lake.run_command("init", *words(place, "--data", "nowhere.parquet"))
    assert (done.code, "data.path" in done.err, (place / "job.yaml").exists()) == (66, True, False)


def test_a_file_that_is_there_stays(place):
    (place / "job.yaml").write_text("mine")
    done = lake.run_command("init", *words(place))
    assert (done.code, (place / "job.yaml").read_text()) == (2, "mine")
    assert "--output must be a new file" in done.err
    (place / "job.yaml").unlink()
    (place / "job.yaml").symlink_to(place / "elsewhere.yaml")
    assert lake.run_command("init", *words(place)).code == 2
    assert not (place / "elsewhere.yaml").exists()
