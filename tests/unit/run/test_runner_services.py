"""Background processes and downloads of other runners, without network or Java."""

import os
import pathlib
import sys
import time
import zipfile
from collections.abc import Callable

import pytest

from deploy.local import downloads, processes
from deploy.local.flink_cluster import FlinkCluster, Ports, _flat
from tests.scenes.conformance import needed

SLEEP = [sys.executable, "-c", "import time; time.sleep(900)"]
PARENT = [sys.executable, "-c", f"import subprocess; subprocess.run({SLEEP!r})"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing on PATH but what a test puts there."""
    monkeypatch.setattr(downloads, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "cache"


def command(cache: pathlib.Path, name: str, script: str) -> None:
    path = cache.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("without", "outcome"),
    [
        (None, pytest.skip.Exception),
        ("prism kafka", pytest.skip.Exception),
        ("", pytest.fail.Exception),
        ("kafka prism2", pytest.fail.Exception),
    ],
)
def test_a_missing_runner_may_be_missing_or_not(monkeypatch, without, outcome):
    """`.ci/run` sets the variable."""
    monkeypatch.delenv("DAPPLE_WITHOUT", raising=False)
    if without is not None:
        monkeypatch.setenv("DAPPLE_WITHOUT", without)
    with pytest.raises(outcome, match="no Go"), needed("prism"):
        raise downloads.UnavailableError("no Go")


@pytest.mark.parametrize(
    ("fetch", "name"),
    [
        (downloads.flink_home, "java"),
        (downloads.flink_runner, "mvn"),
        (downloads.prism_binary, "go"),
        (downloads.s3_server, "go"),
    ],
)
def test_a_missing_tool_is_named(cache, fetch, name):
    with pytest.raises(downloads.UnavailableError, match=f"there is no `{name}` on PATH"):
        fetch()


def test_what_a_client_says_is_the_reason_and_nothing_is_left(cache):
    missing = "Could not resolve dependencies for project x:y:jar:1: Could not find artifact a:b in central (URL)"
    command(cache, "mvn", f"""printf '\\033[0m\\n\\033[1m[ERROR] %s\\nmore\\n' "{missing}"; exit 1""")
    with pytest.raises(
        downloads.UnavailableError, match=r"2\.62\.0 could not be fetched: Could not find artifact a:b$"
    ):
        downloads.flink_runner()
    assert list(cache.iterdir()) == []


def test_fetched_files_are_not_fetched_again(cache):
    command(cache, "go", """echo prism >"$GOBIN/prism" """)
    first = downloads.prism_binary()
    command(cache, "go", "exit 1")
    assert downloads.prism_binary() == first
    assert first.read_text() == "prism\n"


def test_other_jars_than_those_that_were_tested_are_refused(cache):
    command(cache, "mvn", """for word; do case $word in -DoutputDirectory=*) echo x >"${word#*=}/a.jar";; esac; done""")
    with pytest.raises(
        downloads.UnavailableError, match=r"2\.62\.0 came with other jars than those that were tested\.$"
    ):
        downloads.flink_runner()
    assert list(cache.iterdir()) == []


def test_jars_are_joined(tmp_path):
    first = {"a/A.class": "first", "META-INF/services/S": "one", "META-INF/X.SF": "signed", "META-INF/services/": ""}
    second = {"a/A.class": "second", "b/B.class": "b", "META-INF/services/S": "two", "META-INF/MANIFEST.MF": "old"}
    for name, content in {"1.jar": first, "2.jar": second}.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for entry, text in content.items():
                archive.writestr(entry, text)
    downloads._join_jars(tmp_path, tmp_path / "joined.zip")
    with zipfile.ZipFile(tmp_path / "joined.zip") as joined:
        found = {name: joined.read(name).decode() for name in joined.namelist()}
    assert "Main-Class: org.apache.beam.runners.flink.FlinkJobServerDriver\n" in found.pop("META-INF/MANIFEST.MF")
    assert found == {"a/A.class": "first", "b/B.class": "b", "META-INF/services/S": "one\ntwo"}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_process_ends_with_its_children(tmp_path, end):
    process = processes.start(PARENT, tmp_path / "log")
    _wait_until(lambda: _group(process.pid))
    found = _group(process.pid)
    assert process.alive
    getattr(process, end)()
    assert not process.alive
    _wait_until(lambda: not any(map(_runs, found)))
    getattr(process, end)()


def _wait_until(condition: Callable[[], object]) -> None:
    """Waits for something that takes a moment, or minutes on a busy machine."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _group(leader: int) -> list[int]:
    """Other processes of a group."""
    pids = [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if pid != leader and _runs(pid) and _group_of(pid) == leader]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _runs(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_another_process_of_the_same_number_is_left_alone():
    stranger = processes.Process(os.getpid(), "Thu Jan  1 00:00:00 1970")
    assert not stranger.alive
    stranger.stop()
    stranger.kill()


def test_what_does_not_come_up_is_said_with_its_log(tmp_path):
    process = processes.start([sys.executable, "-c", "print('no room')"], tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"it ended before it came up; the end of .*log:\nno room$"):
        processes.wait_for("it", lambda: False, process, tmp_path / "log")


def test_what_takes_too_long_is_said_with_its_log(tmp_path):
    process = processes.start([sys.executable, "-c", "import time; time.sleep(900)"], tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"it did not come up in 0 s; the end of .*log:\n$"):
        processes.wait_for("it", lambda: False, process, tmp_path / "log", seconds=0.3)
    process.kill()


def test_a_process_has_one_time_of_birth(tmp_path):
    process = processes.start([sys.executable, "-c", "import time; time.sleep(900)"], tmp_path / "log")
    assert {processes._born(process.pid) for _ in range(200)} == {process.born}
    process.kill()


def test_free_ports_are_different_and_free():
    asked = [processes.free_ports(6) for _ in range(4)]
    assert all(len(set(ports)) == 6 for ports in asked)
    # Another process may take a port right after it was found free, but hardly one of every six.
    assert any(not any(map(processes.listening, ports)) for ports in asked)


def test_free_ports_are_not_lent_to_connections():
    low = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(low.read_text().split()[0]) if low.exists() else 32768
    assert max(processes.free_ports(50)) < first


def test_settings_get_dotted_names():
    assert _flat({"env": {"java": {"home": "x"}}, "rest.port": 1}) == {"env.java.home": "x", "rest.port": 1}


def test_a_cluster_that_is_not_there_may_be_stopped(tmp_path):
    cluster = FlinkCluster(tmp_path, Ports.free())
    assert not cluster.complete
    cluster.down()
    assert cluster.cancel_jobs() == 0
    assert all("127.0.0.1" in flag for flag in cluster.flags if "localhost" in flag or ":" in flag)
