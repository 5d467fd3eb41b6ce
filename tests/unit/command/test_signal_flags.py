"""Reports of a command besides its log: destinations, forms and refusals."""

import http.server
import json
import logging
import os
import re
import socket
import stat
import threading

import pytest

from dapple_dp.pipelines.command.signal_flags import Signals, signal_flags
from dapple_dp.pipelines.run.signals.exports import Wanted, prometheus_text
from dapple_dp.pipelines.run.signals.log_lines import LogFormat
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.files.signals import measures
from dapple_dp.transforms.files.signals.measures import MEASURES, METRICS, Measures, RunMeasures, add_up
from tests.scenes import lake
from tests.scenes.ledgers import Place

SAMPLE = re.compile(r'dapple_[a-z_]+(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? -?[\d.e+-]+')


def test_flags_are_taken_from_among_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("DAPPLE_LINEAGE", "http://marquez:5000/api/v1/lineage")
    words = ["fit", "--metrics", f"{tmp_path}/m.prom", "--cores", "2", "--export_private_metrics", "--log_level=error"]
    wanted = Wanted(f"{tmp_path}/m.prom", True, "http://marquez:5000/api/v1/lineage")
    assert signal_flags(words) == (["fit", "--cores", "2"], Signals(LogFormat.PLAIN, logging.ERROR, wanted))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metrics"], "--metrics needs a value"),
        (["--metrics", "--lineage"], "--metrics needs a value"),
        (["--metrics=s3://bucket/m.prom"], "--metrics must be in an existing folder on a local disk"),
        (["--metrics=/no/such/folder/m.prom"], "--metrics must be in an existing folder on a local disk"),
        (["--lineage=ftp://host/x"], "--lineage must be a file, or an http"),
        (["--lineage=https://me:hidden@host/x"], "--lineage must be a file, or an http"),
        (["--export_private_metrics"], "--export_private_metrics needs"),
    ],
)
def test_other_places_are_refused(words, said):
    with pytest.raises(ConfigError, match=said) as refused:
        signal_flags(words)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("flag", ["--metrics", "--lineage"])
@pytest.mark.parametrize("content", [b"algorithm: dp_lloyd\n", b"PAR1\x00\xff", b'{"format": 1}\n'])
def test_no_foreign_file_is_overwritten(tmp_path, flag, content):
    """A slip of the shell's completion would cost a job, or a table of private rows."""
    (tmp_path / "mine").write_bytes(content)
    with pytest.raises(ConfigError, match=f"{flag} must be a new file or one that it wrote before"):
        signal_flags(["fit", flag, f"{tmp_path}/mine"])


def test_files_of_commands_before_are_written_again(place, tmp_path):
    words = ("--metrics", f"{tmp_path}/m.prom", "--lineage", f"{tmp_path}/events.jsonl")
    (tmp_path / "events.jsonl").touch()
    for output in ("one", "two"):
        assert lake.run_command(*place.words(output, output), *words).code == 0
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["eventType"] for each in events] == ["START", "COMPLETE"] * 2


def test_exports_are_as_they_were_when_they_were_asked_for():
    """Threads of a run count on while its numbers are written."""
    found = Measures()
    with found.run("fit", "night-1", ""):
        (run,), outside = found.runs, found.outside
        before = dict(run.samples)
        found.add(measures.ROWS, value=2)
        found.note("more")
        assert (run.samples, run.notes, outside.samples) == (before, [], {})
    found.add(measures.ROWS)
    assert outside.samples == {}
    assert found.outside.samples == {(measures.ROWS, ""): 1.0}


def test_every_metric_is_named_as_prometheus_asks():
    names = [each.name for each in METRICS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"dapple_[a-z_]+", each) for each in names)
    assert all(each.name.endswith("_total") == (each.kind is measures.Kind.COUNTER) for each in METRICS)
    assert all(each.private for each in METRICS if re.search("seconds_total|row|pass|input|store|message", each.name))


def test_counters_add_up_and_of_gauges_the_last_counts():
    parts = [{(measures.PHASES, "plan"): 1.0, (measures.WINDOWS, ""): 1.0}, {(measures.PHASES, "plan"): 2.0}]
    assert add_up([*parts, {(measures.WINDOWS, ""): 5.0}]) == {
        (measures.PHASES, "plan"): 3.0,
        (measures.WINDOWS, ""): 5.0,
    }


def test_a_stream_of_years_keeps_the_last_runs_and_all_sums():
    found = Measures()
    with found.run("stream", "outer", ""):
        for index in range(measures.MOST_RUNS + 7):
            with found.run("fit", f"window-{index}", ""):
                found.add(measures.ROWS, value=2)
    assert len(found.runs) == measures.MOST_RUNS
    assert found.runs[-1].run_id == "outer"
    assert found.total[measures.ROWS, ""] == 2 * (measures.MOST_RUNS + 7)


def test_the_text_is_what_prometheus_reads():
    samples = {(measures.PHASES, 'a"b\\c\nd'): 1.0, (measures.ROWS, ""): 12.5, (measures.EPSILON, ""): 1.5}
    run = RunMeasures("fit", "night-1", samples)
    text = prometheus_text([run], samples, 0, private=False)
    lines = text.splitlines()
    assert all(each.startswith(("# HELP ", "# TYPE ")) or SAMPLE.fullmatch(each) for each in lines)
    assert r'dapple_phases_total{phase="a\"b\\c\nd"} 1' in lines
    assert "dapple_rows" not in text
    assert "dapple_rows_total 12.5" in prometheus_text([run], samples, 0, private=True).splitlines()


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def fit(place, *flags, output="out", **settings):
    return lake.run_command(*place.words(output, "week47", **settings), *flags)


def test_the_operators_file_is_for_its_owner_beside_the_staging_folder(place, tmp_path):
    """The text file is for everybody, as the system's mask lets it be."""
    before = os.umask(0o022)
    try:
        assert fit(place, "--metrics", str(tmp_path / "m.prom")).code == 0
    finally:
        os.umask(before)
    mine, text = tmp_path / "out.operator.json", tmp_path / "m.prom"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (mine, text)] == [0o600, 0o644]
    (run,) = json.loads(mine.read_text())["runs"]
    assert (run["job"], run["run_id"], run["dapple_rows_total"]) == ("fit", "week47", 60)
    assert set(run["dapple_phase_seconds_total"]) == {"plan", "charge", "work", "write", "publish"}
    assert run["dapple_pass_seconds_total"].keys() == {"1", "2"}
    private = {each.name for each in METRICS if each.private}
    assert not any(name in text.read_text() for name in private)
    assert {each.name for each in tmp_path.glob("*oper*")} == {mine.name}


def test_private_numbers_are_exported_only_on_request(place, tmp_path):
    assert fit(place, "--metrics", str(tmp_path / "m.prom"), "--export_private_metrics").code == 0
    assert {"dapple_rows_total 60", "dapple_input_files_total 2"} <= set((tmp_path / "m.prom").read_text().splitlines())


def test_without_the_flag_nothing_is_written(place, tmp_path):
    assert fit(place).code == 0
    assert not list(tmp_path.glob("*.operator*"))
    assert MEASURES.listener is None


def test_a_run_that_is_refused_says_so(place, tmp_path):
    done = fit(
        place, "--metrics", str(tmp_path / "m.prom"), privacy={"unit": "record", "epsilon": 900.0, "delta": 1e-6}
    )
    assert done.code == 3
    lines = (tmp_path / "m.prom").read_text().splitlines()
    assert "dapple_exit_code 3" in lines
    assert [each for each in lines if "phases_total{" in each] == ['dapple_phases_total{phase="plan"} 1']


def test_a_full_disk_is_reported_and_ends_no_run(place, tmp_path):
    (tmp_path / "m.prom").mkdir()
    done = fit(place, "--metrics", str(tmp_path / "m.prom"))
    assert done.code == 0
    assert "warning: metrics could not be written" in done.err


class Marquez(http.server.BaseHTTPRequestHandler):
    """Takes events, and keeps them and the keys that they came with."""

    events: list
    keys: list

    def do_POST(self):
        self.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.keys.append(self.headers.get("Authorization"))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def marquez():
    kind = type("Kept", (Marquez,), {"events": [], "keys": []})
    server = http.server.HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage", kind
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_run_reports_its_start_and_its_end(place, marquez, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "letmein")
    assert fit(place, "--lineage", marquez[0]).code == 0
    begin, end = marquez[1].events
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert begin["run"]["runId"] == end["run"]["runId"]
    assert begin["eventTime"] < end["eventTime"]
    assert end["inputs"][0]["name"] == place.job["data"]["path"]
    facet = end["run"]["facets"]["dapple_privacy"]
    assert (facet["private"], facet["ledgerEntry"]["kind"]) == (True, "commit")
    assert marquez[1].keys == ["Bearer letmein"] * 2


def test_a_failure_is_reported_by_its_code_alone(place, tmp_path):
    target = tmp_path / "events.jsonl"
    assert fit(place, "--lineage", str(target), data=place.job["data"] | {"features": "nothing"}).code == 2
    begin, end = map(json.loads, target.read_text().splitlines())
    assert (begin["eventType"], end["eventType"]) == ("START", "FAIL")
    assert end["run"]["facets"]["dapple_failure"]["exitCode"] == 2
    assert "nothing" not in json.dumps(end["run"])


def test_a_server_that_speaks_no_http_ends_no_run(place):
    """Its answer is no error of the system; the run is published and paid when it comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            for _ in range(2):
                with server.accept()[0] as asked:
                    asked.recv(1 << 16)
                    asked.sendall(b"220 mail.example ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        done = fit(place, "--lineage", f"http://127.0.0.1:{server.getsockname()[1]}/api/v1/lineage")
        thread.join()
    assert done.code == 0
    assert done.err.count("warning: an event of lineage could not be sent") == 2


def test_a_server_that_does_not_answer_ends_no_run(place):
    done = fit(place, "--lineage", "http://127.0.0.1:1/api/v1/lineage")
    assert done.code == 0
    assert done.err.count("warning: an event of lineage could not be sent") == 2
