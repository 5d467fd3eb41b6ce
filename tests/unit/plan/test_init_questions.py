"""Questions of `init` to a person: the privacy unit, missing values, bounds and widths."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.plan.proposal import ids_of_people
from dapple_dp.pipelines.tables.private_source import private_source
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.tables.on_launcher import ServerFiles
from tests.scenes import lake
from tests.scenes.terminal import on_terminal


def written(folder, columns, name="rows.csv"):
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table(columns), path)
    else:
        lines = [columns.keys(), *zip(*columns.values(), strict=True)]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return path


def init(path, *flags):
    job = path.with_name("job.yaml")
    job.unlink(missing_ok=True)
    outcome = lake.run_command("init", "--data", str(path), "--output", str(job), *flags)
    return outcome, yaml_text.parse(job.read_text()) if outcome.code == 0 else job.exists()


def ids(columns, parquet=False):
    table = pa.table(columns)
    return ids_of_people(table.schema, table.slice(0, 0) if parquet else table)


N = 60
AGES = [20 + 7 * index % 50 for index in range(N)]
VISITS = [f"P{index // 3:03d}" for index in range(N)]


@pytest.mark.parametrize(
    "name",
    [
        *("patient", "Patient", "patients", "patient_id", "PatientID", "patientid", "customer", "client_no", "kunde"),
        *(
            "Kundennummer",
            "KundenNr",
            "mrn",
            "pid",
            "USUBJID",
            "user_hash",
            "person_key",
            "member_code",
            "email",
            "ssn",
        ),
        *("visit_id", "caseid", "id", "household", "device_id", "Versichertennummer"),
    ],
)
def test_a_name_may_be_that_of_a_person(name):
    for values in (VISITS, list(range(N)), [float(index) for index in range(N)]):
        assert ids({name: values, "age": AGES}, parquet=True) == [name]


@pytest.mark.parametrize(
    "name",
    ["age", "paid", "humidity", "user_age", "client_count", "zip", "index", "Unnamed: 0", "sex", "icd10", "kinder"],
)
def test_others_are_not(name):
    assert ids({name: list(range(N))}, parquet=True) == []


def test_values_that_repeat_as_ids_do_may_be_of_people():
    assert ids({"who": VISITS}) == ["who"]
    # Numbers that are as long as each other, or stand together.
    assert ids({"who": [10_000 + index * 37 % 30 for index in range(N)]}) == ["who"]
    assert ids({"who": [index // 3 for index in range(N)]}) == ["who"]
    # Categories, measurements, and a text for every row.
    assert ids({"sex": ["f", "m"] * 30, "age": AGES, "note": [f"note {index}" for index in range(N)]}) == []
    assert ids({"weight": [50 + index * 7 % 60 + index % 3 / 10 for index in range(N)]}) == []


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_without_a_terminal_init_names_both_lines(tmp_path, name):
    path = written(tmp_path, {"patient": VISITS, "age": AGES}, name)
    refused, exists = init(path, "--domain", "0,120")
    assert (refused.code, exists) == (2, False)
    assert (
        'dapple: --data may have several rows of one person, by "patient"; add --client_id patient to protect a person '
        "with all rows, or --unit record if every row is about another person." in refused.err
    )
    _, job = init(path, "--domain", "0,120", "--client_id", "patient", "--client_rows", "3")
    assert (job["data"]["client_id"], job["privacy"]["unit"]) == ("patient", "client")
    _, job = init(path, "--domain", "0,120", "--unit", "record")
    assert ("client_id" in job["data"], job["privacy"]["unit"]) == (False, "record")
    refused, _ = init(path, "--unit", "record", "--client_id", "patient")
    assert (refused.code, "contradict each other" in refused.err) == (2, True)


def test_ids_without_a_telling_name_are_noticed_in_parquet_too(tmp_path):
    path = written(tmp_path, {"who": VISITS, "age": AGES}, "rows.parquet")
    refused, _ = init(path)
    assert (refused.code, "--client_id who" in refused.err) == (2, True)


@pytest.mark.parametrize(("typed", "unit"), [("patient", "client"), ("record", "record")])
def test_a_terminal_asks_whom_epsilon_protects(tmp_path, typed, unit):
    path = written(tmp_path, {"patient": VISITS, "age": AGES})
    job = tmp_path / "job.yaml"
    with on_terminal("init", "--data", str(path), "--output", str(job), "--domain", "0,9") as terminal:
        terminal.wait_for("Whom does epsilon protect?")
        terminal.wait_for("Column, or record: ")
        terminal.type("nobody\n")
        terminal.wait_for("Column, or record: ")
        terminal.type(f"{typed}\n")
        if unit == "client":
            terminal.wait_for("Public typical number of rows of a client")
            terminal.type("3\n")
        assert terminal.ends() == 0, terminal.seen
    assert yaml_text.parse(job.read_text())["privacy"]["unit"] == unit


def test_a_terminal_asks_which_reading_is_right(tmp_path):
    path, job = tmp_path / "rows.csv", tmp_path / "job.yaml"
    path.write_text("a;b\n1;1.234\n2;5.678\n3;\n")
    with on_terminal("init", "--data", str(path), "--output", str(job), "--domain", "0,9") as terminal:
        terminal.wait_for("1.234 may be 1234, or a little more than 1")
        terminal.wait_for("Value of --decimal: ")
        terminal.type(",\n")
        terminal.wait_for('Public number for a missing "b", or drop or fail: ')
        terminal.type("90\n")
        terminal.wait_for('--missing must be inside the bounds of "b", 0 to 9, got 90')
        terminal.type("drop\n")
        assert terminal.ends() == 0, terminal.seen
    data = yaml_text.parse(job.read_text())["data"]
    assert data["csv"] == {"delimiter": ";", "decimal": ",", "thousands": "."}
    assert data["on_invalid_rows"] == "drop"


def test_without_a_terminal_two_readings_are_refused_with_the_flag(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n1;1.234\n2;5.678\n")
    refused, exists = init(path, "--domain", "0,9")
    assert (refused.code, exists) == (2, False)
    assert (
        'the numbers in "b" can be read in two ways: 1.234 may be 1234, or a little more than 1; add --decimal . '
        "(1.234 is a little more than 1), --decimal , (1.234 is 1234)." in refused.err
    )
    _, job = init(path, "--domain", "0,9", "--decimal", ".")
    assert job["data"]["csv"] == {"delimiter": ";"}


def test_without_a_terminal_all_missing_answers_are_named_at_once(tmp_path):
    """A script is corrected once, also where the format is open, or more columns than a few have holes."""
    holes = {f"v{place}": [*AGES[1:], ""] for place in range(14)}
    path = written(tmp_path, {"patient": VISITS, **holes})
    refused, exists = init(path, "--domain", "0,120")
    fills = [word for name in holes for word in ("--missing", f"{name}=NUMBER")]
    assert (refused.code, exists) == (2, False)
    assert "add --client_id patient" in refused.err
    assert f"add {' '.join(fills)} with public numbers" in refused.err
    added = [word.replace("NUMBER", "40") for word in fills]
    assert init(path, "--domain", "0,120", "--unit", "record", *added)[0].code == 0
    path.write_text("patient;b;c\n1;1.234;5\n2;5.678;\n")
    refused, _ = init(path)
    assert "(1.234 is 1234). With the first of these, --data may have several rows" in refused.err
    assert 'another person. --data has rows without a number in "c"; add --missing c=NUMBER' in refused.err
    # The first answer may be wrong, and then what follows from it isn't the problem.
    path.write_text('id;b\n"1,x";"1.234"\n"2,y";"5.678"\n')
    refused, _ = init(path, "--algorithm", "central_tree", "--missing", "nobody=1")
    assert "--decimal , (1.234 is 1234)" in refused.err
    assert "nobody" not in refused.err


def test_holes_are_left_to_a_person(tmp_path):
    path = written(tmp_path, {"age": [*AGES[1:], "NA"], "weight": AGES, "town": ["", *["a"] * (N - 1)]})
    refused, exists = init(path, "--domain", "0,120")
    assert (refused.code, exists) == (2, False)
    assert '--data has rows without a number in "age"; add --missing age=NUMBER' in refused.err
    assert "--on_invalid_rows drop" in refused.err
    for word in ("drop", "fail"):
        _, job = init(path, "--domain", "0,120", "--on_invalid_rows", word)
        assert job["data"]["on_invalid_rows"] == word
        assert job["data"]["csv"] == {"null_values": ["NA"]}


def test_a_public_fill_keeps_rows_with_holes(tmp_path):
    for name, hole in (("rows.csv", ""), ("rows.parquet", None)):
        path = written(tmp_path, {"age": [*AGES[1:], hole], "weight": AGES}, name)
        refused, _ = init(path, "--domain", "0,120")
        assert (refused.code, "--missing age=NUMBER" in refused.err) == (2, True)
        _, job = init(path, "--domain", "0,120", "--missing", "age=40")
        assert job["data"]["missing"] == {"age": {"fill": 40.0, "indicator": True}}
        assert "on_invalid_rows" not in job["data"]
        _, job = init(path, "--algorithm", "central_tree", "--radius", "200", "--missing", "age=40")
        assert job["data"]["missing"] == {"age": {"fill": 40.0}}


def test_every_column_has_bounds_of_its_own(tmp_path):
    path = written(tmp_path, {"age": AGES, "a=b": AGES, "weight": AGES})
    done, job = init(path, "--domain", "age=0,120", "--domain", "a=b=-5,5", "--domain", "1,2")
    assert json.loads(done.out.splitlines()[-1])["complete"] is True
    assert job["dp_lloyd"]["domain"] == {"age": [0.0, 120.0], "a=b": [-5.0, 5.0], "weight": [1.0, 2.0]}
    done, job = init(path, "--domain", "age=0,120")
    assert json.loads(done.out.splitlines()[-1])["complete"] is False
    assert job["dp_lloyd"]["domain"] == {"age": [0.0, 120.0], "a=b": None, "weight": None}
    done, job = init(path, "--domain", "age=5,5", "--domain", "0,1")
    assert list(job["dp_lloyd"]["domain"]) == ["a=b", "weight"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--domain", "agee=0,1"), '--domain must name features of dp_lloyd, got "agee"; features: "age", "weight"'),
        (("--domain", "age=0,1", "--domain", "age=0,2"), '--domain must be given once for "age"'),
        (("--domain", "0,1", "--domain", "0,2"), "--domain must be given once for all columns"),
        (("--domain", "age=0"), "an interval must be two finite numbers"),
        (("--domain", "age=0,1", "--algorithm", "central_tree"), "--domain must name features of dp_lloyd"),
        (("--missing", "town=1"), '--missing must name columns of numbers that are features, got "town"'),
        (("--missing", "age=121", "--domain", "age=0,120"), '--missing must be inside the bounds of "age", 0 to 120'),
        (("--missing", "age=nan"), "a fill must be a finite number"),
        (("--missing", "age=1", "--missing", "age=2"), '--missing must be given once for "age"'),
        (("--decimal", ";"), "decimal must be"),
        (("--encoding", "rot13"), "encoding must be the name of a text encoding"),
        (("--unit", "client"), "--unit"),
        (("--width", "9000"), "a width must be at most 8192"),
    ],
)
def test_wrong_flags_are_one_sentence(tmp_path, flags, said):
    refused, exists = init(written(tmp_path, {"age": AGES, "weight": AGES}), *flags)
    assert (refused.code, said in refused.err, exists) == (2, True, False), refused.err


def test_flags_are_features_whatever_the_format(tmp_path):
    """One rule for booleans, 0 and 1, and for ids, left out by their names."""
    columns = {"member": [True, False] * 30, "zip": [8000] * N, "zip_code": ["CH-1"] * N, "age": AGES}
    for name in ("rows.csv", "rows.parquet"):
        done, job = init(written(tmp_path, columns, name), "--domain", "0,120")
        assert job["data"]["features"] == ["member", "age"]
        assert job["dp_lloyd"]["domain"] == {"member": [0.0, 1.0], "age": [0.0, 120.0]}
        for left in ("zip", "zip_code"):
            assert f'Left out: "{left}", an id or a code, by its name.\n' in done.out


@pytest.mark.parametrize("algorithm", [("--domain", "0,1"), ("--algorithm", "central_tree", "--radius", "2")])
def test_lists_without_a_width_are_not_complete(tmp_path, algorithm):
    path = written(tmp_path, {"x": [[1.0, 2.0], [3.0, 4.0]]}, "rows.parquet")
    done, job = init(path, *algorithm)
    assert (json.loads(done.out.splitlines()[-1])["complete"], job["data"]["width"]) == (False, None)
    assert "FILL IN" in (tmp_path / "job.yaml").read_text().partition("spends nothing.")[2]
    done, job = init(path, *algorithm, "--width", "2")
    assert (json.loads(done.out.splitlines()[-1])["complete"], job["data"]["width"]) == (True, 2)


def test_settings_of_csv_are_refused_for_parquet(tmp_path):
    path = written(tmp_path, {"age": AGES}, "rows.parquet")
    refused, _ = init(path, "--decimal", ",")
    assert (refused.code, "rows.parquet is not a CSV file; leave out --decimal." in refused.err) == (2, True)
    data = DataConfig(path=str(path), features=["age"], csv={"delimiter": ";"})
    with pytest.raises(InputError, match=r"data\.csv is set"):
        _ = private_source(SimpleNamespace(data=data)).listed.files
    # Server data may be Parquet beside rows that are CSV: the section is of both.
    rows = ServerFiles.at(str(path), data.csv_form.text).rows({"age": pa.float64()})
    assert rows.column("age").to_pylist() == AGES


def test_columns_of_one_name_are_a_fault_of_the_file(tmp_path):
    table = pa.table([pa.array([1.0]), pa.array([2.0]), pa.array([3.0])], names=["a", "a", "b"])
    pq.write_table(table, tmp_path / "rows.parquet")
    refused, _ = init(tmp_path / "rows.parquet", "--domain", "0,1")
    assert (refused.code, "data.features" in refused.err) == (2, False)
    assert 'rows.parquet must have every column once, got "a" several times; rename the others.' in refused.err


def test_what_is_recognized_is_said(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes("Größe;Ort\r\n171,5;Zürich\r\n".encode("cp1252"))
    done, job = init(path, "--domain", "100,250")
    assert done.out.startswith("Read as CSV with {delimiter: ;, encoding: cp1252, decimal: ','}.\n")
    assert 'Left out: "Ort", text.\n' in done.out
    assert job["data"]["features"] == ["Größe"]
    assert "171" not in (tmp_path / "job.yaml").read_text().replace(str(tmp_path), "")
