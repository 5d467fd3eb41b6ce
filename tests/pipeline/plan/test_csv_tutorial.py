"""The page "From a CSV file", done as it is written: its commands, what is asked, and what is typed and made."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from examples.customers import make_customers
from tests.scenes import lake
from tests.scenes.terminal import ROOT, on_terminal

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/tutorials/csv.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
ANSWERS = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE)
LEFT_OUT = {"customer_id", "signup_date", "country", "vat_percent"}
EPSILON = float(re.search(r"epsilon ([\d.]+), which is what `init` writes", PAGE)[1])


def commands():
    return [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture
def place(tmp_path):
    """A folder as the page finds it: with the examples, and nothing of an earlier reader."""
    shutil.copytree(ROOT / "examples/customers", tmp_path / "examples/customers")
    return tmp_path


def shell(command, place):
    """A command of the page as a shell runs it, `dapple` on its path; what it says."""
    (place / "bin").mkdir(exist_ok=True)
    script = place / "bin/dapple"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dapple_dp "$@"\n')
    script.chmod(0o700)
    environment = os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ["sh", "-c", command]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked_on_a_terminal(command, place):
    with on_terminal(*shlex.split(command)[1:], folder=place) as terminal:
        for name, typed in ANSWERS:
            terminal.wait_for(f'Public interval of "{name}", such as 0,100: ')
            terminal.type(f"{typed}\n")
        assert terminal.ends() == 0, terminal.seen
    assert json.loads(terminal.seen.splitlines()[-1])["complete"] is True
    assert set(re.findall(r'Left out: "(\w+)"', terminal.seen)) == LEFT_OUT


def filled_in_by_hand(command, place):
    """Returns where nobody is asked, the answers go where the job says FILL IN; a constant goes from both places."""
    assert json.loads(shell(command, place).splitlines()[-1])["complete"] is False
    text = (place / "job.yaml").read_text()
    for name, typed in ANSWERS:
        text = text.replace(f'"{name}":  # FILL IN two numbers, such as [0, 100].', f'"{name}": [{typed}]')
    text = text.replace('    "vat_percent": [8.1,8.1]\n', "").replace("features: [vat_percent, ", "features: [")
    (place / "job.yaml").write_text(text)


def check_result(place, said):
    assert (place / "result/report.html").stat().st_size > 10_000
    features = set(yaml.safe_load((place / "job.yaml").read_text())["data"]["features"])
    assert features == {name for name, _ in ANSWERS} - LEFT_OUT
    assert set(json.loads((place / "result/run.json").read_text())["features"]) == features
    summary = json.loads(said.splitlines()[-1])
    assert 0.99 * EPSILON < summary["epsilon"] <= EPSILON
    assert json.loads((place / "result/privacy.json").read_text())["epsilon"] == summary["epsilon"]
    assert centers_of(place).shape == (4, len(features))


def centers_of(place):
    """Released centers, in units of the columns."""
    return np.array(pq.read_table(place / "result/centers.parquet")["center_in_units"].to_pylist())


def test_the_page_has_four_commands_and_no_prompts():
    assert len(commands()) == 4
    assert [line.split()[0] for line in commands()] == ["cp", "dapple", "dapple", "dapple"]
    for name in LEFT_OUT:
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("begin", [asked_on_a_terminal, filled_in_by_hand])
def test_the_commands_of_the_page_lead_to_the_report(place, begin):
    copy, init, plan, fit = commands()
    shell(copy, place)
    begin(init, place)
    assert "No private row was read" in shell(plan, place)
    check_result(place, shell(fit, place))


def test_the_report_shows_the_groups_that_the_customers_were_drawn_from(place, monkeypatch):
    """Under a key of the test: noise may hide a group, and here it decides what is compared."""
    monkeypatch.chdir(place)
    copy, init, *_ = commands()
    shell(copy, place)
    filled_in_by_hand(init, place)
    with (place / "job.yaml").open("a") as job:
        job.write(f"key_uri: {lake.write_key(place / 'key')}\n")
    outcome = lake.run_command("fit", "--config", "job.yaml", "--output", "result", "--run_id", "one")
    assert outcome.code == 0, outcome.err
    groups = np.array(list(make_customers.GROUPS.values()))[:, :, 0]
    far = np.abs(centers_of(place)[:, None] - groups).max(axis=2)
    assert far.min(axis=0).max() < 3.0


def test_the_customers_are_those_of_the_script():
    written = (ROOT / "examples/customers/customers.csv").read_bytes()
    assert len(written) < 250_000
    lines = written.decode().splitlines()
    assert lines[0] == ",".join(make_customers.HEADER)
    assert lines[1:] == [",".join(map(str, row)) for row in make_customers.rows()]
    assert PAGE.count("\n".join(lines[:3])) == 1
    assert f"{len(lines) - 1:,} customers" in PAGE


def test_the_page_is_the_first_tutorial_after_five_minutes():
    index = pathlib.Path(ROOT / "docs/index.md").read_text()
    assert "maxdepth: 1\n\nstart/five-minutes\ntutorials/csv\n" in index
    assert "tutorials/csv.md" in (ROOT / "docs/how-to/plan-before-spending.md").read_text()
