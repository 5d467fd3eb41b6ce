"""A name in a line of the log, or on the command line, is one name: it begins no other line, and can be encoded."""

import json
import logging
import subprocess
import sys

import pandas as pd
import pytest

from dapple_dp import DPKMeans
from dapple_dp.pipelines.command.main import main
from dapple_dp.pipelines.run.signals.log_lines import LogFormat, formatter
from tests.scenes import lake

FORGED = "night\n2026-11-24T03:15:00Z INFO week47 dapple: done: all\r\x1b[2J\u2028\x85"


def record(message, *words, level=logging.WARNING):
    return logging.LogRecord("pipelines", level, "x.py", 1, message, words, None)


@pytest.mark.parametrize("form", LogFormat)
@pytest.mark.parametrize(("message", "words"), [("epoch %s", (FORGED,)), (f"epoch {FORGED}", ())])
def test_a_name_begins_no_line(form, message, words):
    line = formatter(form).format(record(message, *words))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    if form is not LogFormat.JSON:
        assert "night\\n2026-11-24T03:15:00Z INFO" in line


@pytest.mark.parametrize("form", LogFormat)
def test_half_a_character_can_be_written(form):
    line = formatter(form).format(record("read %s", "a\udcff.csv"))
    assert "\\udcff" in line
    assert line.encode()


def test_a_traceback_keeps_its_lines():
    found = record("failed", level=logging.ERROR)
    try:
        raise ValueError("x")
    except ValueError:
        found.exc_info = sys.exc_info()
    assert formatter(LogFormat.PLAIN).format(found).count("\n") >= 2


def test_the_ledger_shows_a_data_set_in_its_line(tmp_path):
    place = ("--ledger", str(tmp_path / "l.sqlite"))
    limit = ("--dataset", FORGED, "--epsilon", "1", "--delta", "1e-6")
    assert lake.run_command("ledger", "limit", *place, *limit).code == 0
    shown = lake.run_command("ledger", "show", *place).out
    assert [line.startswith("night\\n2026") for line in shown.splitlines()] == [True, False]
    assert list(json.loads(shown.splitlines()[-1])["datasets"]) == [FORGED]


@pytest.mark.parametrize(
    "words",
    [
        ["ledger", "limit", "--ledger", "l", "--dataset", "a\udcff", "--epsilon", "1", "--delta", "1e-6"],
        ["fit", "--config", "job.yaml", "--output", "o\udcff"],
        ["fit", "--config", "job.yaml", "--output", "o", "--metrics=\udcff"],
        ["init", "--data", "x\ud800", "--output", "job.yaml"],
        ["verify", "o\udcff", "--verbose"],
    ],
)
def test_a_word_that_is_no_text_is_refused(words, capfd):
    assert main(words) == 2
    assert "the command line must be text in UTF-8, got" in capfd.readouterr().err


@pytest.mark.parametrize("name", [b"part\xff.csv", b"dt=\xff/part.csv"])
def test_a_file_whose_name_is_no_text_is_refused(name, tmp_path):
    path = bytes(tmp_path) + b"/lake/" + name
    subprocess.run([b"mkdir", b"-p", path.rpartition(b"/")[0]], check=True)
    with open(path, "wb") as file:
        file.write(b"a,b\n1,2\n")
    words = ("--data", str(tmp_path / "lake"), "--unit", "record", "--output", str(tmp_path / "job.yaml"))
    done = lake.run_command("init", *words)
    assert (done.code, "data.path must name files and folders in UTF-8" in done.err) == (2, True), done.err


def test_a_column_whose_name_is_no_text_is_refused():
    rows = pd.DataFrame([[0.1, 0.2]] * 30)
    rows.columns = pd.Index(["a", "b\ud800"], dtype=object)
    with pytest.raises(ValueError, match="valid Unicode column names"):
        DPKMeans(n_clusters=2, epsilon=1.0, delta=1e-6, domain=(0.0, 1.0)).fit(rows)
