"""Attacks on errors of CSV files: a field that cannot be read must be in no error, log, output or graph."""

import logging
import os
import subprocess
import sys
import traceback

import pytest
import yaml

from dapple_dp.pipelines.kmeans.fit import execute
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.tables.file_seal import open_sealed, seal_of
from dapple_dp.transforms.tables.listing import FileList
from dapple_dp.transforms.tables.source import find_files
from tests.scenes import lake
from tests.scenes.terminal import ROOT

pytestmark = pytest.mark.slow

SECRET = "Zx4711secret"
NUMBER = "31.41592653"
NAMES = ("a", "b", "c", "d")
GOOD = "a,b,c,d\n" + "1.0,2.0,3.0,4.0\n" * 40
BAD = {
    "a text": f"{SECRET},2,3,4\n",
    "a text that begins like a number": f"1.0{SECRET},2,3,4\n",
    "a decimal comma": f'"{NUMBER.replace(".", ",")}",2,3,4\n',
    "a field too many": f"1,2,3,4,{SECRET}\n",
    "a field too few": f"{NUMBER},2\n",
    "no UTF-8": b"1,2,3," + SECRET.encode() + b"\xff\n",
    "a quote that is never closed": f'1,2,3,"{SECRET}\n',
    "words of Arrow": f"\"In CSV column #3: Row #99: CSV conversion error to double: '{SECRET}'\",2,3,4\n",
    "an infinity": f"inf,2,3,{NUMBER}\n",
}
FIRST_ROWS = {
    "no header": f"{NUMBER},2,3,4\n" * 30,
    "no header, with a name": f"{SECRET},2,3,4\n" * 30,
    "no UTF-8 in the header": SECRET.encode() + b"\x81,b,c,d\n1,2,3,4\n",
}


def raw(text):
    return text if isinstance(text, bytes) else text.encode()


def job_of(folder, content):
    """A job whose second file is bad."""
    (folder / "lake").mkdir()
    (folder / "lake/part-0.csv").write_text(GOOD)
    (folder / "lake/part-1.csv").write_bytes(content)
    domain = {name: [0, 10] for name in NAMES}
    return {
        "algorithm": "dp_lloyd",
        "data": {"path": str(folder / "lake"), "features": list(NAMES)},
        "n_clusters": 2,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": domain},
    }


def holds_nothing(text):
    return not any(telltale in text for telltale in (SECRET, "31.41", "31,41", "4711secret"))


CONTENTS = {name: raw(GOOD) + raw(row) for name, row in BAD.items()} | {
    name: raw(text) for name, text in FIRST_ROWS.items()
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
@pytest.mark.parametrize("flags", [(), ("--verbose",)])
def test_the_command_says_a_sentence_without_the_field(tmp_path, content, flags):
    outcome = lake.run_job(job_of(tmp_path, content), tmp_path, *flags)
    assert outcome.code == 2
    assert outcome.out == ""
    last = [line for line in outcome.lines if line.startswith("dapple: ")][-1]
    assert "part-1.csv" in last
    assert holds_nothing(outcome.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_neither_error_nor_what_it_came_from_nor_a_log_has_the_field(tmp_path, caplog, content):
    caplog.set_level(logging.DEBUG)
    fit = plan_files(validated(job_of(tmp_path, content)))
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError) as caught:
        execute(fit, beam_options([]), str(tmp_path / "run"))
    error, seen = caught.value, []
    while error is not None:
        seen.append("".join(traceback.format_exception(error)) + repr(error.args) + repr(vars(error)))
        error = error.__cause__ or error.__context__
    assert holds_nothing("".join(seen))
    assert holds_nothing(caplog.text)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("a text", ("--direct_num_workers=2", "--direct_running_mode=multi_processing")),
        ("a field too many", ("--direct_num_workers=2", "--direct_running_mode=multi_threading")),
        ("no header, with a name", ("--direct_num_workers=2", "--direct_running_mode=multi_processing")),
    ],
)
def test_workers_write_no_field_to_their_logs(tmp_path, name, flags):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job_of(tmp_path, CONTENTS[name])))
    command = [sys.executable, "-m", "dapple_dp", "fit", "--config", str(tmp_path / "job.yaml"), "--verbose"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "out"), *flags], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 2, done.stderr
    assert holds_nothing(done.stdout + done.stderr)


@pytest.mark.parametrize("content", FIRST_ROWS.values(), ids=FIRST_ROWS.keys())
def test_init_shows_no_first_row(tmp_path, content):
    (tmp_path / "rows.csv").write_bytes(raw(content))
    outcome = lake.run_command("init", "--data", str(tmp_path / "rows.csv"), "--output", str(tmp_path / "job.yaml"))
    assert outcome.code == 2
    assert holds_nothing(outcome.out + outcome.err)
    assert not (tmp_path / "job.yaml").exists()


def test_a_job_asked_for_a_column_that_is_not_there_shows_names_only(tmp_path):
    job = job_of(tmp_path, raw(GOOD.replace("a,b,c,d", "a,b,c,e") + f"1,2,3,{SECRET}\n"))
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 2
    assert "column 'd' not found in" in outcome.lines[-1]
    assert holds_nothing(outcome.err)


def test_server_rows_get_the_same_message(tmp_path):
    job = job_of(tmp_path, raw(GOOD))
    (tmp_path / "server.csv").write_text(f"{GOOD}{SECRET},2,3,4\n")
    job |= {"algorithm": "feddp_kmeans", "server_data": {"path": str(tmp_path / "server.csv")}}
    job |= {"clipping": {"norm": "server_radius"}}
    del job["dp_lloyd"]
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 2
    assert "column 'a' of" in outcome.lines[-1]
    assert holds_nothing(outcome.err)


def test_bad_rows_void_the_charge(tmp_path):
    """The charge is void after any bad input: nothing was released, so nothing was spent."""
    from dapple_dp.schemas.privacy.charge import Limit
    from tests.scenes import ledgers

    ledger = ledgers.new_ledger(tmp_path, Limit(epsilon=5.0, delta=1e-5), "census")
    job = job_of(tmp_path, CONTENTS["a text"])
    job["data"]["name"] = "census"
    assert lake.run_job(job | {"ledger": str(tmp_path / "ledger.sqlite")}, tmp_path).code == 2
    assert ledgers.kinds(ledger)[-1] == "void"


# Files that change under a job.


def listed(path):
    return next(iter(FileList.of(find_files(str(path), {}), "data.path")))


def test_another_end_of_the_same_length_and_time_is_noticed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(GOOD)
    found, state = listed(path), os.stat(path)
    path.write_text(GOOD[:-4] + "5.0\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with (
        pytest.raises(InputError, match="was changed after the job listed it"),
        open_sealed(found.file, found.seal, found.path),
    ):
        pass


def test_the_seal_of_a_large_file_reads_its_end_only(tmp_path):
    """The last bytes of a text would be the length of a footer of hundreds of megabytes."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a\n" + b"1.5\n" * (1 << 20))
    before = seal_of(str(path)).footer
    content = bytearray(path.read_bytes())
    content[4:7] = b"2.5"
    path.write_bytes(content)
    assert seal_of(str(path)).footer == before
    content[-4:-1] = b"2.5"
    path.write_bytes(content)
    assert seal_of(str(path)).footer != before


def test_a_link_without_an_ending_is_read_by_its_own_name(tmp_path):
    (tmp_path / "blob").write_text(GOOD)
    (tmp_path / "rows.csv").symlink_to(tmp_path / "blob")
    found = listed(tmp_path / "rows.csv")
    with open_sealed(found.file, found.seal, found.path) as (file, _):
        assert file.names == NAMES
