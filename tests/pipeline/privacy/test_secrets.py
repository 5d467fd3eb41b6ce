"""The run key stays where it is: not in the job graph, not in a pickle, not in an output or a log."""

import base64
import binascii
import bz2
import re
import zlib

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.pipeline import PipelineVisitor

from dapple_dp.pipelines.kmeans import fit
from dapple_dp.pipelines.run.options import beam_options
from tests.scenes import lake
from tests.scenes.graphs import add_fit

PACKED = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


def spellings(key):
    """The ways in which a key may be written."""
    return {
        "raw": key,
        "hex": key.hex().encode(),
        "upper hex": key.hex().upper().encode(),
        "base64": base64.b64encode(key).rstrip(b"="),
        "url base64": base64.urlsafe_b64encode(key).rstrip(b"="),
        "repr": repr(key)[2:-1].encode(),
    }


SPELLINGS = spellings(lake.KEY)


def unpacked(content):
    """The content, and everything that is packed in it as a Beam pickle."""
    found, queue = [], [content]
    while queue:
        found.append(queue.pop())
        for match in PACKED.findall(found[-1]):
            try:
                raw = base64.b64decode(match, validate=True)
                queue.append(bz2.decompress(raw) if raw[:3] == b"BZh" else zlib.decompress(raw))
            except (binascii.Error, ValueError, OSError, zlib.error):
                continue
    return b"\n".join(found)


def spellings_in(content, key=lake.KEY):
    """In which spellings the key occurs; Beam packs pickles, so they are unpacked first."""
    plain = unpacked(content)
    return {name for name, text in spellings(key).items() if text in plain}


class Functions(PipelineVisitor):
    """Collects every DoFn and CombineFn of a pipeline."""

    def __init__(self, pipeline):
        self.found = {}
        pipeline.visit(self)

    def visit_transform(self, node):
        self._keep(node)

    def enter_composite_transform(self, node):
        self._keep(node)

    def _keep(self, node):
        function = getattr(node.transform, "fn", None)
        if isinstance(function, beam.DoFn | beam.CombineFn):
            self.found[node.full_label] = function


class Job:
    """A job with every kind of round, built under a key that the test knows."""

    def __init__(self, folder):
        points = lake.mixture(60)
        clients = [row // 10 for row in range(60)]
        lake.write_files(folder / "lake", [lake.table_of(points, clients)])
        self.folder = folder
        self.key_uri = lake.write_key(folder / "key")
        server = lake.write_server(folder / "server.parquet")
        self.settings = lake.job(str(folder / "lake"), server, "client", key_uri=self.key_uri, lloyd={"steps": 1})
        self.pipeline = beam.Pipeline(options=beam_options([]))
        planned = lake.ready(self.settings, folder / "listings")
        add_fit(self.pipeline, planned, fit.aggregation_of(planned, self.key_uri), str(folder / "staging"))
        self.functions = Functions(self.pipeline).found


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return Job(tmp_path_factory.mktemp("secrets"))


def test_the_graph_does_not_hold_the_key(job):
    graph = job.pipeline.to_runner_api().SerializeToString()
    assert job.key_uri.encode() in unpacked(graph)
    assert spellings_in(graph) == set()


def test_a_planted_key_is_caught(job):
    """A function that holds the key is found through Beam's packing, in any spelling."""
    for name, text in SPELLINGS.items():
        planted = beam.Pipeline(options=beam_options([]))
        _ = planted | beam.Create([0]) | beam.Map(lambda _, held: held, text)
        assert name in spellings_in(planted.to_runner_api().SerializeToString())


def holds_key(function):
    return any(isinstance(value, bytes) and value == lake.KEY for value in vars(function).values())


def test_functions_do_not_take_the_key_along(job):
    holders = []
    for label, function in job.functions.items():
        if isinstance(function, beam.DoFn):
            function.setup()
        holders += [label] * holds_key(function)
        packed = pickler.dumps(function)
        again = pickler.loads(packed)
        assert type(again) is type(function), label
        assert not holds_key(again), label
        assert spellings_in(packed) == set(), label
        if isinstance(function, beam.DoFn):
            function.teardown()
        assert not holds_key(function), label
    assert [label.split("/")[-2] for label in holders] == ["Noise"] * 4


def test_nothing_that_is_written_holds_the_key(job, tmp_path):
    outcome = lake.run_job(job.settings, tmp_path, "--verbose")
    assert outcome.code == 0
    assert spellings_in((outcome.out + outcome.err).encode()) == set()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 7
    assert {path.name for path in written if spellings_in(path.read_bytes())} == set()


def test_a_failure_does_not_show_the_key(job, tmp_path):
    broken = job.settings | {"data": job.settings["data"] | {"features": "y"}}
    outcome = lake.run_job(broken, tmp_path, "--verbose")
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert spellings_in((outcome.out + outcome.err).encode()) == set()
