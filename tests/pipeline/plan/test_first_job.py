"""`dapple init` as a newcomer has it: asked on a terminal, or filled in by hand, then planned and run."""

import datetime
import json
import os
import pty
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.kmeans.fit_config import load_config
from tests.scenes import lake
from tests.scenes.terminal import END, INTERRUPT, ROOT, on_terminal

pytestmark = pytest.mark.slow

GROUPS = {"age": [25.0, 40.0, 70.0], "yearly income": [2e5, 8e5, 4e5]}


@pytest.fixture
def place(tmp_path):
    """Rows of three groups as lakes have them: with ids, dates, texts and flags."""
    rng, group = np.random.default_rng(3), np.arange(1500) % 3
    columns = {name: np.array(each)[group] * rng.normal(1.0, 0.01, 1500) for name, each in GROUPS.items()}
    columns |= {
        "customer_id": np.arange(1500) + 10**9,
        "signed": pa.array([datetime.date(2026, 1, 1)] * 1500),
        "country": pa.array(["CH"] * 1500),
        "is_member": pa.array(group == 0),
        "event_ts": np.arange(1500),
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    return tmp_path


def words(place, *more):
    """Flags for rows of which every one is another customer's."""
    table, job = str(place / "rows.parquet"), str(place / "job.yaml")
    return ["init", "--data", table, "--output", job, "--clusters", "3", "--unit", "record", *more]


def runs(place):
    """Plans and runs the job; centers in units of the columns, sorted by the first."""
    job = ("--config", str(place / "job.yaml"))
    done = lake.run_command("plan", *job, "--rows", "1500")
    assert done.code == 0, done.err
    done = lake.run_command("fit", *job, "--output", str(place / "out"))
    assert done.code == 0, done.err
    return np.array(pq.read_table(place / "out/centers.parquet")["center_in_units"].to_pylist())


def test_a_terminal_is_asked_for_each_column_and_the_job_runs(place):
    with on_terminal(*words(place, "--epsilon", "8")) as terminal:
        terminal.wait_for("without looking at the rows")
        terminal.wait_for('Public interval of "age", such as 0,100: ')
        terminal.type("0,100\n")
        terminal.wait_for('Public interval of "yearly income", such as 0,100: ')
        terminal.type("0,1e6\n")
        assert terminal.ends() == 0, terminal.seen
    assert json.loads(terminal.seen.splitlines()[-1])["complete"] is True
    job = load_config((place / "job.yaml").read_text())
    assert job.data.features == ("age", "yearly income", "is_member")
    assert job.dp_lloyd.domain == {"age": (0.0, 100.0), "yearly income": (0.0, 1e6), "is_member": (0.0, 1.0)}
    for name, reason in {
        "customer_id": "an id or a code, by its name",
        "signed": "a date or a time",
        "event_ts": "a date or a time, by its name",
        "country": "text",
    }.items():
        assert f'Left out: "{name}", {reason}.\n' in terminal.seen
        assert f'# Left out: "{name}", {reason}.\n' in (place / "job.yaml").read_text()
    found = runs(place)
    assert np.sort(found[:, 1]) == pytest.approx(sorted(GROUPS["yearly income"]), rel=0.3)


def test_an_answer_that_cannot_be_taken_is_asked_for_again(place):
    with on_terminal(*words(place)) as terminal:
        terminal.wait_for('"age", such as 0,100: ')
        for wrong in (
            b"100,0",
            b"0;1",
            b"5",
            b"1,1.0000000001",
            b"nan,1",
            b"nan,nan",
            b"inf,inf",
            b"0,1,000",
            b"\xff\xfe",
            b"0,inf",
        ):
            terminal.type(wrong + b"\n")
            terminal.wait_for('"age", such as 0,100: ')
        assert (
            "an interval must be two finite numbers, the smaller one first, got '100,0'; write 0,100." in terminal.seen
        )
        terminal.type("0,100\n")
        terminal.wait_for('"yearly income", such as 0,100: ')
        terminal.type("\n")
        assert terminal.ends() == 0, terminal.seen
    assert json.loads(terminal.seen.splitlines()[-1])["complete"] is False
    assert yaml.safe_load((place / "job.yaml").read_text())["dp_lloyd"]["domain"] == {
        "age": [0.0, 100.0],
        "yearly income": None,
        "is_member": [0.0, 1.0],
    }


def test_a_column_with_one_public_value_is_left_out_and_the_job_runs(place):
    """Whatever its private values are: nobody looks at them."""
    with on_terminal(*words(place, "--epsilon", "8")) as terminal:
        terminal.wait_for("has equal ends, such as 5,5.")
        terminal.wait_for('"age", such as 0,100: ')
        terminal.type("5,5\n")
        terminal.wait_for('"yearly income", such as 0,100: ')
        terminal.type("0,1e6\n")
        assert terminal.ends() == 0, terminal.seen
    summary = json.loads(terminal.seen.splitlines()[-1])
    assert (summary["complete"], "age" in summary["left_out"]) == (True, True)
    assert 'Left out: "age", a constant, by its public interval.\n' in terminal.seen
    text = (place / "job.yaml").read_text()
    assert '# Left out: "age", a constant, by its public interval.\n' in text
    assert load_config(text).dp_lloyd.domain == {"yearly income": (0.0, 1e6), "is_member": (0.0, 1.0)}
    assert runs(place).shape[1] == 2


@pytest.mark.parametrize("wrong", ["5,5", "0,0"])
def test_a_table_of_constants_is_no_table(place, wrong):
    table = pq.read_table(place / "rows.parquet").drop(["is_member"])
    pq.write_table(table, place / "rows.parquet")
    done = lake.run_command(*words(place, "--domain", wrong))
    assert done.code == 2
    assert "--data must have a column whose public interval is more than a single number, got none" in done.err
    assert not (place / "job.yaml").exists()
    pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0]), 2)}), place / "rows.parquet")
    assert lake.run_command(*words(place, "--domain", wrong)).code == 2


def test_a_column_without_a_value_is_left_out_by_its_type(place):
    table = pq.read_table(place / "rows.parquet")
    pq.write_table(table.append_column("fax", pa.nulls(1500)), place / "rows.parquet")
    done = lake.run_command(*words(place, "--domain", "0,100"))
    assert done.code == 0, done.err
    assert 'Left out: "fax", without a value, by its type.\n' in done.out


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_init_reads_names_and_types_of_csv(place, ending):
    table = pq.read_table(place / "rows.parquet").append_column("fax", pa.nulls(1500))
    with pa.output_stream(str(place / f"rows.{ending}")) as file:
        pa_csv.write_csv(table, file)
    (place / "rows.parquet").unlink()
    given = words(place, "--domain", "0,1000000", "--epsilon", "8")
    given[2] = str(place / f"rows.{ending}")
    done = lake.run_command(*given)
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1])["left_out"] == [
        "customer_id",
        "signed",
        "country",
        "event_ts",
        "fax",
    ]
    for name, reason in {
        "signed": "a date or a time",
        "fax": "without a value, by its type",
    }.items():
        assert f'Left out: "{name}", {reason}.\n' in done.out
    assert runs(place).shape == (3, 3)


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [(INTERRUPT, 130, "interrupted; "), (END, 2, "The input ended before all questions were answered")],
)
def test_leaving_is_confirmed_in_a_sentence(place, key, code, said):
    with on_terminal(*words(place)) as terminal:
        terminal.wait_for('"age", such as 0,100: ')
        terminal.type("0,100\n")
        terminal.wait_for('"yearly income", such as 0,100: ')
        terminal.type(key)
        assert terminal.ends() == code, terminal.seen
    last = terminal.seen.rpartition('"yearly income", such as 0,100: ')[2].removeprefix("^C").strip()
    assert last.startswith(f"dapple: {said}")
    assert "\n" not in last
    assert not (place / "job.yaml").exists()


def test_nobody_is_asked_where_no_question_would_be_seen(place):
    """The input is a terminal, the output goes to a file or a pipe."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "dapple_dp", *words(place)]
    done = subprocess.run(command, stdin=slave, stdout=subprocess.PIPE, cwd=ROOT, text=True, check=True, timeout=600)
    os.close(slave)
    os.close(master)
    assert "Public interval" not in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["complete"] is False


def test_a_line_is_to_be_filled_in_for_each_column_and_the_job_then_runs(place):
    done = lake.run_command(*words(place, "--epsilon", "8"))
    assert json.loads(done.out.splitlines()[-1])["complete"] is False
    text = (place / "job.yaml").read_text()
    planned = lake.run_command("plan", "--config", str(place / "job.yaml"))
    assert (planned.code, "got nothing for column 'age'" in planned.err) == (2, True)
    lines = text.splitlines()
    assert [line for line in lines if "FILL IN" in line][1:] == [
        '    "age":  # FILL IN two numbers, such as [0, 100].',
        '    "yearly income":  # FILL IN two numbers, such as [0, 100].',
    ]
    for wanted in ("[0, 100]", "[0, 1000000]"):
        text = text.replace("  # FILL IN two numbers, such as [0, 100].", f" {wanted}", 1)
    (place / "job.yaml").write_text(text)
    assert np.sort(runs(place)[:, 1]) == pytest.approx(sorted(GROUPS["yearly income"]), rel=0.3)


def test_a_closed_input_is_no_terminal(place):
    command = f"exec '{sys.executable}' -m dapple_dp {' '.join(words(place))} <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["complete"] is False
