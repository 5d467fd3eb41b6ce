"""No exact private number leaves: not in outputs, logs, exceptions, the job graph, pickles or counters."""

import json
import re
import struct

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam.internal import pickler

from dapple_dp.pipelines.kmeans import fit
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.transforms.core import noise
from tests.pipeline.privacy.test_secrets import PACKED, Functions, unpacked
from tests.scenes import lake
from tests.scenes.graphs import add_fit

N_ROWS = 4817
TELLTALE = 3.1415926535
"""Stands in the first coordinate of every private row."""
WRITTEN = re.compile(rb"(?<![\d.])\d{8,}")
COUNT = re.compile(rb"(?<![\da-fA-F.,])4,?817(?:\.0)?(?![\da-fA-F.])")
"""No part of an address or a digest: among this many hexadecimal digits any four occur by chance."""


class Leaks:
    """Everything exact about a run's data: rows, their number, and the sums of all rounds, in several spellings."""

    def __init__(self):
        self.sums = []

    @property
    def numbers(self):
        found = np.unique(np.abs(np.concatenate(self.sums)))
        return [int(each) for each in found if each > 1 << 24]

    @property
    def told(self):
        """Numbers of four bytes and more that are not zero; bytes of rounder numbers are in any pickle."""
        return [each for each in self.numbers if sum(map(bool, each.to_bytes(8, "little"))) >= 4]

    @property
    def spellings(self):
        raw = [struct.pack("<d", TELLTALE), struct.pack(">d", TELLTALE)]
        raw += [each.to_bytes(8, order) for each in self.told for order in ("little", "big")]
        return [b"31415926", b"3.141592", *raw]

    def within(self, content):
        """Spellings anywhere, and numbers as they are written; digits inside longer ones are other numbers.

        What is packed is looked at as it is unpacked: among its letters and digits any four occur by chance.
        """
        opened = unpacked(content)
        written = {str(each).encode() for each in self.numbers} & set(WRITTEN.findall(opened))
        counts = COUNT.findall(PACKED.sub(b"", opened))
        return [each for each in self.spellings if each in opened] + sorted(written) + counts


class Job:
    def __init__(self, folder, unit):
        points = lake.mixture(N_ROWS)
        points[:, 0] = TELLTALE
        clients = np.arange(N_ROWS) // 20
        self.folder = folder
        data = lake.write_lake(folder / "lake", points, clients, n_files=2, row_group_size=1400)
        server = lake.write_server(folder / "server.parquet")
        self.settings = lake.job(data, server, unit, lloyd={"steps": 1})


@pytest.fixture(scope="module", params=["record", "client"])
def job(request, tmp_path_factory):
    return Job(tmp_path_factory.mktemp("private"), request.param)


@pytest.fixture(scope="module")
def ran(job):
    """The command's outcome with every log there is, and the exact numbers that it must not show."""
    leaks, draw = Leaks(), noise.draw_release

    def recorded(key, plan, exact_sum):
        leaks.sums.append(exact_sum.copy())
        return draw(key, plan, exact_sum)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "draw_release", recorded)
        outcome = lake.run_job(job.settings, job.folder, "--verbose", "--run_id", "one")
    assert outcome.code == 0
    assert len(leaks.sums) >= 4
    return outcome, leaks


def test_logs_and_the_last_line_show_no_exact_number(ran):
    outcome, leaks = ran
    assert leaks.within((outcome.out + outcome.err).encode()) == []


def test_no_output_holds_an_exact_number(job, ran):
    _, leaks = ran
    written = [path for path in (job.folder / "out").iterdir() if path.suffix != ".parquet"]
    assert {path.name for path in written} >= {"privacy.json", "run.json", "report.html"}
    assert {path.name: leaks.within(path.read_bytes()) for path in written if leaks.within(path.read_bytes())} == {}


def test_no_released_value_is_an_exact_sum(job, ran):
    """Sums of megabytes of lattice units hit their exact value by chance with probability below 1e-3 in all."""
    _, leaks = ran
    table = pq.read_table(job.folder / "out" / "releases.parquet", use_threads=False)
    name = next(name for name in table.column_names if "value" in name)
    values = [abs(each) for row in table[name].to_pylist() for each in (row if isinstance(row, list) else [row])]
    assert set(map(int, values)) & set(leaks.numbers) == set()


def test_a_planted_number_is_found(ran):
    _, leaks = ran
    for number in leaks.numbers:
        assert leaks.within(json.dumps({"rows": number}).encode())
        assert leaks.within(f"-{number}.0".encode())
    for number in leaks.told:
        assert leaks.within(b"..." + number.to_bytes(8, "little") + b"...")
    assert leaks.within(b"..." + struct.pack("<d", TELLTALE) + b"...")
    assert leaks.within(f"rows: {N_ROWS}".encode())


def test_graph_and_pickles_hold_no_exact_number(job, ran):
    _, leaks = ran
    pipeline = beam.Pipeline(options=beam_options([]))
    key_uri = lake.write_key(job.folder / "key")
    planned = lake.ready(job.settings, job.folder / "listings")
    add_fit(pipeline, planned, fit.aggregation_of(planned, key_uri), str(job.folder / "staging"))
    assert leaks.within(pipeline.to_runner_api().SerializeToString()) == []
    for label, function in Functions(pipeline).found.items():
        assert leaks.within(pickler.dumps(function)) == [], label


def test_no_counter_is_written(job):
    pipeline = beam.Pipeline(options=beam_options([]))
    key_uri = lake.write_key(job.folder / "counted_key")
    (job.folder / "counted").mkdir()
    planned = lake.ready(job.settings, job.folder / "listings")
    add_fit(pipeline, planned, fit.aggregation_of(planned, key_uri), str(job.folder / "counted"))
    result = pipeline.run()
    result.wait_until_finish()
    assert not any(result.metrics().query().values())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_exception_shows_no_exact_number(job, ran, tmp_path, value):
    _, leaks = ran
    points = np.full((N_ROWS, 4), TELLTALE)
    points[-1, 2] = value
    settings = job.settings | {"data": job.settings["data"] | {"path": str(tmp_path / "lake")}}
    lake.write_lake(tmp_path / "lake", points, np.arange(N_ROWS) // 20, row_group_size=1400)
    outcome = lake.run_job(settings, tmp_path, "--verbose")
    assert outcome.code == 2
    assert leaks.within((outcome.out + outcome.err).encode()) == []
