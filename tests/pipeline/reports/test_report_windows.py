"""A model for each window of reports that arrive: by calendar and clock, each as a `decode` of its folder gives it."""

import json
import pathlib
import re
import shutil
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.jobs import waiting
from dapple_dp.pipelines.reports import windows as job
from dapple_dp.schemas.reports.rows import to_table
from dapple_dp.transforms.reports.encode import keyed_reports
from tests.pipeline.kmeans.test_stream_waits import Clock
from tests.scenes import crashes, lake
from tests.scenes.crashes import Point
from tests.scenes.reports import parameters

pytestmark = pytest.mark.slow

DATES = ("2026-01-01", "2026-01-02", "2026-01-03")
EMPTY = DATES[1]
MEANS = 8.0 * np.eye(3, 4)
N_CLIENTS = 400
SHUFFLED = {
    "privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6},
    "reports": {"mode": "shuffle", "min_batch": N_CLIENTS},
}


def reports(seed: int, public=None) -> pa.Table:
    """Reports of as many clients, with nonces of their own for each seed."""
    public = public or parameters()
    ids = [f"{seed}-{index}".encode() for index in range(N_CLIENTS)]
    found = keyed_reports(lake.mixture(N_CLIENTS, seed, MEANS), ids, public, lake.KEY)
    return to_table(found.nonces, found.indices, public)


def put(folder: pathlib.Path, date: str, table: pa.Table, file: str = "hour-0.parquet") -> None:
    (folder / "inbox" / f"dt={date}").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "inbox" / f"dt={date}" / file)


def words(folder: pathlib.Path, output: str, *flags: str, **windows) -> tuple[str, ...]:
    """A command line; the settings are beside the output."""
    calendar = {"name": "phones", "column": "dt", "first": DATES[0], "windows": len(DATES)} | windows
    settings = {"reports": {"path": str(folder / "inbox")}, "windows": calendar}
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(settings))
    return ("decode", "--config", str(folder / f"{output}.yaml"), "--output", str(folder / output), *flags)


def decode(folder: pathlib.Path, output: str, **windows) -> lake.Outcome:
    return lake.run_command(*words(folder, output, "--once", **windows))


def files(folder: pathlib.Path) -> dict[str, bytes]:
    """Files of a window, without what distinguishes one run of equal reports from another."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    manifest = json.loads(found.pop("run.json"))
    of_the_run = ("started", "manifest_digest", "files", "config_digest")
    kept = {name: value for name, value in manifest.items() if name not in of_the_run}
    if "report.html" in found:
        stamps = r'@page \{.*|<dl class="stamp".*?</dl>|<footer>\n<p>run .*'
        found["report.html"] = re.sub(stamps, "", found["report.html"].decode()).encode()
    return found | {"run.json": json.dumps(kept, sort_keys=True).encode()}


def released(folder: pathlib.Path) -> dict[str, dict[str, bytes]]:
    return {path.name: files(path) for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Reports of two days with an empty one between them, decoded in `models`; only read."""
    folder = tmp_path_factory.mktemp("windows")
    put(folder, DATES[0], reports(0))
    put(folder, DATES[2], reports(2))
    (folder / "inbox" / "parameters.json").write_text(parameters().to_json())
    outcome = decode(folder, "models")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == {
        "output": str(folder / "models"), "released": list(DATES), "windows": 3, "windows_left": 0, "warnings": 0
    }  # fmt: skip
    assert f"the window of {EMPTY} has no model, since it has 0 reports" in outcome.err
    return folder


@pytest.fixture
def arriving(tmp_path, finished):
    """The same reports in a folder of the test's own."""
    shutil.copytree(finished / "inbox", tmp_path / "inbox")
    return tmp_path


@pytest.mark.parametrize("date", [DATES[0], DATES[2]])
def test_a_window_is_a_decode_of_its_folder(finished, tmp_path, date):
    """All files have the same bytes; `privacy.json` and the manifest say more."""
    public, models = str(finished / "inbox" / "parameters.json"), finished / "models" / date
    alone = {"reports": {"path": str(finished / "inbox" / f"dt={date}"), "parameters": public}}
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump(alone))
    line = ("decode", "--config", str(tmp_path / "alone.yaml"), "--output", str(tmp_path / "alone"))
    outcome = lake.run_command(*line, "--run_id", f"phones-{date}")
    assert outcome.code == 0, outcome.err
    wanted, found = files(tmp_path / "alone"), files(models)
    manifests = [json.loads(each.pop("run.json")) for each in (wanted, found)]
    assert manifests[1] == manifests[0] | {"window": date, "decoded": True}
    said = [json.loads(each.pop("privacy.json")) for each in (wanted, found)]
    assert "T times epsilon" in said[1].pop("windows")["new_reports"]
    assert said[0] == said[1]
    assert found == wanted
    digests = [json.loads((each / "run.json").read_text())["config_digest"] for each in (tmp_path / "alone", models)]
    assert digests[0] == digests[1]


def test_an_empty_window_is_complete_and_has_no_model(finished):
    """Its number of reports is public, and is all that it reveals."""
    folder = finished / "models" / EMPTY
    assert {path.name for path in folder.iterdir()} == {"privacy.json", "run.json"}
    manifest = json.loads((folder / "run.json").read_text())
    assert (manifest["run_id"], manifest["n_reports"], manifest["decoded"]) == (f"phones-{EMPTY}", 0, False)
    assert lake.run_command("verify", str(folder)).code == 0


def test_reports_that_come_late_count_nowhere(arriving, finished):
    assert decode(arriving, "models").code == 0
    before = released(arriving / "models")
    put(arriving, EMPTY, reports(1))
    put(arriving, DATES[0], reports(1), "late.parquet")
    outcome = decode(arriving, "models")
    assert (outcome.code, json.loads(outcome.out)["released"]) == (0, [])
    assert released(arriving / "models") == before == released(finished / "models")


def test_a_report_of_the_far_future_moves_nothing(arriving, finished):
    put(arriving, "2099-01-01", reports(7))
    assert decode(arriving, "models").code == 0
    assert released(arriving / "models") == released(finished / "models")


def test_duplicates_count_once_in_a_window_and_once_in_each_window(arriving, finished):
    """A window looks at its own folder, so what another one holds changes nothing in it."""
    put(arriving, DATES[0], reports(0), "again.parquet")
    put(arriving, EMPTY, reports(0))
    assert decode(arriving, "models").code == 0
    found, wanted = released(arriving / "models"), released(finished / "models")
    assert (found[DATES[0]], found[DATES[2]]) == (wanted[DATES[0]], wanted[DATES[2]])
    assert found[EMPTY]["centers.parquet"] == wanted[DATES[0]]["centers.parquet"]


def test_only_windows_whose_days_are_over_are_decoded(arriving, monkeypatch):
    monkeypatch.setattr(waiting, "now", Clock("2026-01-01T22:30"))
    outcome = decode(arriving, "models")
    assert json.loads(outcome.out)["released"] == [DATES[0]]
    assert json.loads(outcome.out)["windows_left"] == 2


def test_a_job_that_waits_decodes_the_same(arriving, finished, monkeypatch):
    """Without `--once` it ends with the last window."""
    monkeypatch.setattr(waiting, "now", Clock("2026-01-01T05:00"))
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.001)
    outcome = lake.run_command(*words(arriving, "models"))
    assert outcome.code == 0, outcome.err
    assert sum("waiting for the window of" in line for line in outcome.lines) == 3
    assert released(arriving / "models") == released(finished / "models")


def test_a_signal_ends_it_between_windows(arriving, finished, monkeypatch):
    release, left = job.run_settings, [signal.SIGTERM]

    def disturbed(*given):
        while left:
            signal.raise_signal(left.pop())
        return release(*given)

    monkeypatch.setattr(job, "run_settings", disturbed)
    outcome = decode(arriving, "models")
    assert (outcome.code, json.loads(outcome.out)["released"]) == (0, [DATES[0]])
    assert decode(arriving, "models").code == 0
    assert released(arriving / "models") == released(finished / "models")


@pytest.mark.parametrize(
    "point",
    [
        Point("dapple_dp.pipelines.reports.decode:run_graph", after=True, call=2),
        Point("dapple_dp.pipelines.run.folder:RunFolder.publish", call=2),
        Point("dapple_dp.pipelines.run.folder:RunFolder.publish", after=True, call=1),
    ],
    ids=lambda point: point.name,
)
def test_a_killed_job_goes_on_to_the_same_bytes(arriving, finished, point):
    line = list(words(arriving, "models", "--once"))
    assert crashes.run(line, str(arriving / "line"), key=bytes(32), point=point) == -9
    outcome = decode(arriving, "models")
    assert outcome.code == 0, outcome.err
    assert released(arriving / "models") == released(finished / "models")


def test_broken_reports_stop_the_job_and_a_later_call_goes_on(arriving, finished):
    """A folder that is no report folder is someone's mistake, and not a window without reports."""
    whole = arriving / "inbox" / f"dt={DATES[2]}" / "hour-0.parquet"
    content = whole.read_bytes()
    whole.write_bytes(b"broken")
    outcome = decode(arriving, "models")
    assert outcome.code == 2
    assert not (arriving / "models" / DATES[2]).exists()
    whole.write_bytes(content)
    assert decode(arriving, "models").code == 0
    assert released(arriving / "models") == released(finished / "models")


def test_a_path_that_is_not_there_is_no_row_of_empty_windows(arriving):
    """With parameters of another place nothing else would show it."""
    line = words(arriving, "models", "--once")
    settings = yaml.safe_load((arriving / "models.yaml").read_text())
    settings["reports"] = {"path": str(arriving / "inbux"), "parameters": str(arriving / "inbox" / "parameters.json")}
    (arriving / "models.yaml").write_text(yaml.safe_dump(settings))
    outcome = lake.run_command(*line)
    assert outcome.code == 2
    assert "reports.path must be a folder with folders of dates" in outcome.err
    assert not (arriving / "models").exists()


def test_all_windows_of_an_output_have_the_parameters_of_the_first(arriving, finished):
    """Parameters that someone put in their place are refused, and a new output takes them."""
    due = {"windows": 1}
    assert decode(arriving, "models", **due).code == 0
    public = arriving / "inbox" / "parameters.json"
    first, other = public.read_text(), parameters(privacy__epsilon=2.0)
    public.write_text(other.to_json())
    outcome = decode(arriving, "models")
    assert outcome.code == 2
    assert f"reports of the window of {EMPTY} must have the parameters of the windows before" in outcome.lines[-1]
    assert "choose another --output" in outcome.lines[-1]
    assert [each.name for each in (arriving / "models").iterdir()] == [DATES[0]]
    assert decode(arriving, "others").code == 0
    public.write_text(first)
    assert decode(arriving, "models").code == 0
    assert released(arriving / "models") == released(finished / "models")
    (arriving / "models" / EMPTY / "run.json").unlink()
    (arriving / "models" / DATES[0] / "run.json").write_text("{}")
    outcome = decode(arriving, "models")
    assert outcome.code == 2
    fault = "got no format number instead of format 1; read it with the version of dapple"
    assert f"must be the manifest of the window of {DATES[0]}, {fault}" in outcome.lines[-1]


def test_a_window_that_was_copied_does_not_stand_for_another(arriving, finished):
    """The folder of a day under the name of another one would be taken for its model, and no call would decode it."""
    assert decode(arriving, "models", windows=1).code == 0
    shutil.copytree(arriving / "models" / DATES[0], arriving / "models" / EMPTY)
    outcome = decode(arriving, "models")
    assert outcome.code == 2
    assert f"must be the manifest of the window of {EMPTY}, got that of another run" in outcome.lines[-1]
    shutil.rmtree(arriving / "models" / EMPTY)
    assert decode(arriving, "models").code == 0
    assert released(arriving / "models") == released(finished / "models")


def test_parameters_in_the_folder_of_a_window_are_those_of_all(arriving):
    """An encode leaves them there; without its manifest nothing else would show it."""
    own = arriving / "inbox" / f"dt={DATES[0]}" / "parameters.json"
    own.write_text(parameters(privacy__epsilon=2.0).to_json())
    outcome = decode(arriving, "models")
    assert outcome.code == 2
    assert f"{own} must be the parameters of all windows" in outcome.lines[-1]
    assert not (arriving / "models").exists()
    own.write_text(parameters().to_json())
    assert decode(arriving, "models").code == 0


def test_shuffled_windows(tmp_path):
    """Each is a batch of its own; one below the minimum was never written, and does not stop the next."""
    public = parameters(**SHUFFLED)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "parameters.json").write_text(public.to_json())
    for seed, date in enumerate(DATES):
        table = reports(seed, public).slice(int(date == EMPTY))
        digest = pa.array([public.digest] * table.num_rows, pa.binary(32))
        (tmp_path / f"arrived-{date}").mkdir()
        pq.write_table(table.append_column("parameters", digest), tmp_path / f"arrived-{date}" / "all.parquet")
        section = {"arrived": str(tmp_path / f"arrived-{date}"), "parameters": str(tmp_path / "inbox/parameters.json")}
        (tmp_path / "shuffle.yaml").write_text(yaml.safe_dump({"reports": section}))
        output = str(tmp_path / "inbox" / f"dt={date}")
        outcome = lake.run_command("shuffle", "--config", str(tmp_path / "shuffle.yaml"), "--output", output)
        assert outcome.code == (2 if date == EMPTY else 0)
    assert decode(tmp_path, "models").code == 0
    found = [(tmp_path / "models" / date / "centers.parquet").exists() for date in DATES]
    assert found == [True, False, True]
    privacy = json.loads((tmp_path / "models" / DATES[0] / "privacy.json").read_text())
    assert "T times delta" in privacy["windows"]["new_reports"]
    assert privacy["windows"]["one_report_again"].startswith("must not be")


def test_a_window_that_no_shuffler_wrote_is_refused(tmp_path):
    public = parameters(**SHUFFLED)
    put(tmp_path, DATES[0], reports(0, public))
    (tmp_path / "inbox" / "parameters.json").write_text(public.to_json())
    outcome = decode(tmp_path, "models")
    assert outcome.code == 2
    assert "reports.path must hold shuffled reports where reports.mode is shuffle" in outcome.err
