"""The files of `deploy/federation/`: commands that the command takes, codes that are not tried again, no rights."""

import configparser
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from dapple_dp.pipelines.command import help_pages
from dapple_dp.pipelines.command.main import overview
from dapple_dp.pipelines.masked.command_line import RUN
from dapple_dp.pipelines.run import flags

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "federation"
UNIT = FOLDER / "dapple-party@.service"
GOES_ON = {0, 1, 66, 67, 75, 130}
"""Codes after which the same command may end otherwise."""


@pytest.fixture(scope="module")
def service():
    found = configparser.ConfigParser(interpolation=None, strict=True)
    found.optionxform = str
    found.read(UNIT)
    return found["Service"]


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def given(words):
    """Returns what the flags of a party are, if the command takes them."""
    assert words[:2] == ["masked", "party"]
    params, rest = flags.read(overview().commands["masked"].commands["party"].commands[RUN], words[2:])
    assert rest == []
    return params


def test_the_unit_runs_a_party(service):
    (line,) = re.findall(r"^#\s+PARTY=(.*)$", UNIT.read_text(), re.MULTILINE)
    program, *words = service["ExecStart"].replace("$PARTY", line).replace("%i", "north").split()
    assert program == "/opt/dapple/bin/dapple"
    assert given(words)["config"] == "/etc/dapple/north.yaml"
    assert (given(words)["role"], given(words)["client"]) == ("client", "north")


def test_what_no_retry_changes_is_not_tried_again(service):
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == set(help_pages.EXIT_CODES) - GOES_ON
    assert (service["Restart"], service["SuccessExitStatus"]) == ("on-failure", "130")


def test_the_unit_keeps_parties_apart(service):
    assert service["User"] == service["Group"] == "dapple-%i"
    assert (service["UMask"], service["StateDirectoryMode"], service["LimitCORE"]) == ("0007", "0700", "0")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    text = UNIT.read_text().replace("/opt/dapple/bin/dapple", shutil.which("true"))
    path = tmp_path / "dapple-party@north.service"
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if path.name in line and "EnvironmentFile" not in line]
    assert not said, done.stderr


def test_each_service_is_a_party_with_its_own_places_and_no_rights(compose):
    for name, service in compose["services"].items():
        words = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in service["command"]]
        assert given(words)["role"] == name == service["profiles"][0]
        mounted = {each.rpartition(":")[2] for each in service["volumes"]}
        assert ("/released" in mounted) == (given(words)["released"] is not None) == (name != "aggregator")
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert service["read_only"]
        assert "ports" not in service
        assert service["build"]["target"] == "driver"
