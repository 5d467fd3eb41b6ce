"""Masked aggregation over Flower: what a role takes of another, and a whole run by Flower's simulation.

`python -m tests.own_environments flower` makes an environment with Flower; elsewhere the simulation is skipped.
"""

import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import types

import pyarrow.parquet as pq
import pytest
import yaml

from examples.flower import __main__ as example
from examples.flower import federation
from pipelines.command.main import main as dapple
from schemas.kmeans.fit_config import load_config
from schemas.masked.config import validated_aggregate

SIGNATURE_BYTES = 64
HAS_FLOWER = all(importlib.util.find_spec(each) is not None for each in ("flwr", "ray"))


@pytest.fixture
def exchange(monkeypatch):
    """The module of the app, which an app's bundle holds under this name."""
    monkeypatch.syspath_prepend(example.HERE)
    for name in [each for each in sys.modules if each.startswith("dapple_flower")]:
        monkeypatch.delitem(sys.modules, name)
    import dapple_flower.exchange as found

    yield found
    for name in [each for each in sys.modules if each.startswith("dapple_flower")]:
        sys.modules.pop(name)


@pytest.mark.parametrize(
    "name",
    [
        "../client.yaml",
        "/etc/passwd",
        "00_a/../../client.yaml",
        "00_a/messages/../../x.sealed",
        "00_a/messages/east.sealed",
        "00_a/messages/north.sealed\n",
        "00_a/messages/northxsealed",
        "00_a/sum.parquet",
        "plan.json/x",
        "secret",
    ],
)
def test_a_client_sends_its_own_message_only(exchange, tmp_path, name):
    role = exchange.Role(tmp_path)
    with pytest.raises(exchange.RefusedError, match="one that its sender may write"):
        role.take({"00_a/messages/north.sealed": b"x", name: b"x"}, exchange.of_client("north"))
    assert list(role.exchange.rglob("*")) == []


def test_a_server_sends_no_message_and_a_collector_no_sum(exchange, tmp_path):
    role = exchange.Role(tmp_path)
    sums, plan = {"00_a/sum.parquet": b"x"}, {"plan.json": b"{}", "00_a/broadcast.json": b"{}"}
    for files, names in (({"00_a/messages/north.sealed": b"x"}, exchange.OF_SERVER), (sums, exchange.OF_COLLECTOR)):
        with pytest.raises(exchange.RefusedError):
            role.take(files, names)
    role.take(plan, exchange.OF_COLLECTOR)
    role.take(sums | plan, exchange.OF_SERVER)
    assert role.files(exchange.OF_SERVER) == plan | sums
    assert role.files(exchange.OF_COLLECTOR) == plan


def test_a_file_is_sent_once(exchange, tmp_path):
    role = exchange.Role(tmp_path)
    role.take({"plan.json": b"one"}, exchange.OF_SERVER)
    role.take({"plan.json": b"one"}, exchange.OF_SERVER)
    with pytest.raises(exchange.RefusedError, match="got another content"):
        role.take({"plan.json": b"two"}, exchange.OF_SERVER)
    assert role.files(exchange.OF_SERVER) == {"plan.json": b"one"}


def test_only_files_of_the_exchange_are_sent(exchange, tmp_path):
    """Neither the secret nor a release, wherever they lie."""
    role = exchange.Role(tmp_path)
    for name in ("secret", "exchange/secret", "exchange/00.parquet", "released.parquet", "exchange/x/plan.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"private")
    for names in (exchange.OF_SERVER, exchange.OF_COLLECTOR, exchange.of_client("north")):
        assert role.files(names) == {}


def test_a_job_that_fails_ends_the_step(exchange, tmp_path, monkeypatch):
    monkeypatch.setenv("DAPPLE", "false")
    with pytest.raises(exchange.RefusedError, match="dapple unmask must succeed"):
        exchange.Role(tmp_path).unmask()


def test_pairwise_masks_are_refused(exchange, tmp_path, monkeypatch):
    monkeypatch.setenv("DAPPLE", """sh -c 'echo "{\\"leg\\": \\"keys\\"}"'""")
    with pytest.raises(exchange.RefusedError, match="scheme must be shared_secret over Flower"):
        exchange.Role(tmp_path).upload()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation") / "out"
    federation.write(folder)
    return folder


def test_the_folders_hold_what_a_role_may_know(written):
    homes = {path.name: path for path in (written / "clients").iterdir()}
    assert sorted(homes) == sorted(federation.HOSPITALS)
    secrets = {(home / "secret").read_bytes() for home in homes.values()}
    assert len(secrets) == 1
    for path in (written / "aggregator").iterdir():
        assert not any(secret in path.read_bytes() for secret in secrets)
    assert validated_aggregate(yaml.safe_load((written / "aggregator" / "aggregate.yaml").read_text())).threshold == 2
    for name, home in homes.items():
        assert load_config((home / "client.yaml").read_text()).masked.parties.keys() >= {name, "aggregator"}
        assert (home / "secret").stat().st_mode & 0o777 == 0o600
    assert [name for name, home in homes.items() if (home / "collector.yaml").exists()] == ["east"]


def test_the_run_is_opened_under_the_collectors_key(written, exchange, monkeypatch):
    """The first steps by the very jobs, without Flower between them."""

    def run(words, **_):
        program = (words, 0, json.dumps({"round": 0, "rounds": 3}))
        assert dapple(words[1:]) == 0
        return subprocess.CompletedProcess(*program)

    monkeypatch.setattr(exchange, "subprocess", types.SimpleNamespace(run=run, PIPE=subprocess.PIPE))
    east, north = (exchange.Role(written / "clients" / name) for name in ("east", "north"))
    server = exchange.Role(written / "aggregator")
    assert (east.collects, north.collects) == (True, False)
    east.unmask("collector.yaml")
    server.take(east.files(exchange.OF_COLLECTOR), exchange.OF_COLLECTOR)
    server.run("aggregate", "aggregate.yaml")
    north.take(server.files(exchange.OF_SERVER), exchange.OF_SERVER)
    north.unmask()
    north.upload()
    sent = north.files(exchange.of_client("north"))
    assert [name.rpartition("/")[2] for name in sent] == ["north.sealed"]
    server.take(sent, exchange.of_client("north"))


def test_the_example_says_what_it_lacks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example, "OUTPUT", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert example.main() == 3
    assert "pip install 'flwr[simulation]' first" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not HAS_FLOWER, reason="flwr is not installed; python -m tests.own_environments flower")
def test_flower_runs_the_rounds(tmp_path):
    """A process of its own, since Ray stays in the one that starts it."""
    folder = tmp_path / "out"
    program = "import pathlib, sys; from examples.flower.__main__ import simulate; simulate(pathlib.Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, str(folder)], cwd=example.ROOT, check=False, timeout=3000)
    assert done.returncode == 0
    results = {path.name: path / "released" / "result" for path in (folder / "clients").iterdir()}
    assert len({(each / "centers.parquet").read_bytes() for each in results.values()}) == 1
    privacy = json.loads((results["north"] / "privacy.json").read_text())
    assert privacy["masked"]["roles"] == "jobs of their own"
    sums = sorted((folder / "aggregator" / "exchange").glob("*/sum.parquet"))
    tables = [pq.read_table(io.BytesIO(path.read_bytes()[:-SIGNATURE_BYTES])) for path in sums]
    assert [len(table["senders"][0]) for table in tables] == [3, 3]
    secret = (folder / "clients" / "north" / "secret").read_bytes()
    release = pq.read_table(results["north"] / "releases.parquet")
    assert len(release) > 0
    for path in (each for each in (folder / "aggregator").rglob("*") if each.is_file()):
        assert secret not in path.read_bytes(), path
    assert not (folder / "aggregator" / "released").exists()
    assert not list(pathlib.Path(folder / "aggregator").rglob("releases.parquet"))
