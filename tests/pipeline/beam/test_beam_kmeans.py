"""`dapple_dp.beam.KMeans`: clusters the rows of somebody's pipeline, and releases what a job on these rows releases."""

import base64
import bz2
import dataclasses
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import warnings

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.utils import proto_utils

from dapple_dp import DPKMeans, PrivacyWarning
from dapple_dp.beam import KMeans, kmeans, rows
from dapple_dp.beam.launch_keys import LaunchKeys
from dapple_dp.estimator.job_of_parameters import Place, job_of
from dapple_dp.pipelines.kmeans.fit import execute, read_release
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.run.failures import original_error
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.unit import Clients
from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyFlowError, RunnerError
from dapple_dp.transforms.core import keys, loop
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.on_beam.workers import HeldKeyFn, held_keys
from dapple_dp.transforms.privacy.key_files import KeyFile
from tests.scenes import lake

NAMES = ("age", "hours")
MEANS = np.array([[-0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])
POINTS = np.clip(lake.mixture(300, means=MEANS) * [1.0, 0.5], -1.5, 1.5)
CLIENTS = np.random.default_rng(1).integers(40, size=300)
FIT = {"epsilon": 2.0, "delta": 1e-6, "random_state": 0}
BOUNDED = FIT | {"domain": (-1, 1), "columns": NAMES}
ALGORITHMS = {
    "dp_lloyd": {"algorithm": "dp_lloyd", "domain": (-1, 1)},
    "by column": {"domain": {"age": (-1, 1), "hours": (-2, 1)}, "missing": {"hours": 0.25}},
    "central_tree": {"algorithm": "central_tree", "clipping_norm": 1.5, "lloyd_steps": 1},
}


def batch(points, names=NAMES):
    return pa.record_batch([pa.array(column) for column in np.asarray(points).T], names=list(names))


def elements(points, clients=None, n_batches=7):
    """Batches of neighboring rows; with clients, several of one client that are apart."""
    if clients is None:
        return [batch(part) for part in np.array_split(points, n_batches)]
    parts = [np.flatnonzero(clients == client) for client in np.unique(clients)]
    pairs = [
        (int(clients[half[0]]), batch(points[half])) for part in parts for half in (part[::2], part[1::2]) if len(half)
    ]
    return [pairs[index] for index in np.random.default_rng(2).permutation(len(pairs))]


def keep(element, path):
    with open(path, "ab") as file:
        pickle.dump(element, file)


def kept(path):
    found = []
    with open(path, "rb") as file:
        while file.peek(1):
            found.append(pickle.load(file))
    return found


def built(made, transform, folder, label="Cluster"):
    """A pipeline that leaves models and releases in files."""
    pipeline = beam.Pipeline(options=beam_options(()))
    found = pipeline | beam.Create(made, reshuffle=False) | label >> transform
    _ = found | "Keep" >> beam.Map(keep, str(folder / "models"))
    _ = found.releases | "KeepReleases" >> beam.Map(keep, str(folder / "releases"))
    return pipeline


def run(pipeline):
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise original_error(error) or error from error


def model_of(made, transform, folder):
    run(built(made, transform, folder))
    (found,) = kept(folder / "models")
    return found


def released(releases):
    return [(each.path, each.values.tobytes()) for each in releases]


@pytest.fixture
def key(tmp_path):
    """A key that draws as it is."""
    with lake.written_keys_draw():
        yield lake.write_key(tmp_path / "key")


def to_batch(lines):
    return pa.RecordBatch.from_pylist([{name: each[name] for name in NAMES} for each in map(json.loads, lines)])


def save(model, folder):
    model.save(folder)


def test_a_pipeline_as_its_user_writes_it(tmp_path):
    events = [{"age": age, "hours": hours, "name": "x"} for age, hours in POINTS]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in events))
    with beam.Pipeline(options=beam_options(())) as pipeline:
        batches = (
            pipeline
            | beam.io.ReadFromText(str(tmp_path / "events.jsonl"))
            | beam.BatchElements(min_batch_size=50, max_batch_size=50)
            | beam.Map(to_batch)
        )
        _ = (
            batches
            | KMeans(3, epsilon=2.0, delta=1e-6, domain=(-1, 1), columns=NAMES)
            | beam.Map(save, f"{tmp_path}/model")
        )
    model = DPKMeans.load(f"{tmp_path}/model")
    assert list(model.feature_names_in_) == list(NAMES)
    assert abs(model.noisy_sizes_.sum() - len(POINTS)) < 60
    assert model.privacy_.epsilon <= 2.0
    assert "the graph that Beam ran" in str(model.privacy_)
    assert model.predict(pa.Table.from_batches([batch(POINTS)])).shape == (len(POINTS),)


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_releases_the_bytes_of_a_job_on_files(algorithm, unit, key, tmp_path):
    """Noise follows from the key and the exact sum, so equal releases have equal sums."""
    given = FIT | ALGORITHMS[algorithm] | {"unit": unit}
    clients = CLIENTS if unit == "client" else None
    given |= {} if clients is None else {"client_rows": 8}
    found = model_of(elements(POINTS, clients), KMeans(3, columns=NAMES, key_uri=key, **given), tmp_path)

    columns = dict(zip(NAMES, POINTS.T, strict=True)) | ({} if clients is None else {"client": clients})
    order = np.arange(len(POINTS)) if clients is None else np.argsort(clients, kind="stable")
    lake.write_files(
        tmp_path / "lake", [pa.table(columns).take(order[rows]) for rows in (slice(0, 110), slice(110, None))]
    )
    config = job_of(
        DPKMeans(3, **given).get_params(),
        Place(str(tmp_path / "lake"), None, NAMES, None if clients is None else "client"),
    )
    (tmp_path / "staging").mkdir()
    fit = plan_files(config.model_copy(update={"key_uri": key}))
    expected = read_release(fit, str(tmp_path / "staging"), execute(fit, beam_options(()), str(tmp_path / "staging")))
    assert released(found.releases_) == released(expected.model.releases)
    centers = expected.model.centers if expected.in_units is None else expected.in_units
    assert found.cluster_centers_.tobytes() == centers.tobytes()
    assert found.privacy_.to_json() == expected.privacy.to_json()
    assert released(kept(tmp_path / "releases")) == released(found.releases_)


def test_it_is_the_estimator_on_the_same_rows(key, tmp_path, monkeypatch):
    monkeypatch.setattr("dapple_dp.pipelines.run.run_keys.memory_key", lambda: loop.RunKey(lake.KEY))
    expected = DPKMeans(3, **FIT, domain=(-1, 1)).fit(pa.table(dict(zip(NAMES, POINTS.T, strict=True))))
    found = model_of(elements(POINTS), KMeans(3, key_uri=key, **BOUNDED), tmp_path)
    assert released(found.releases_) == released(expected.releases_)
    assert found.get_params() == expected.get_params()
    assert found.warnings_ == expected.warnings_
    assert "Private clustering" in found.report()._repr_html_()


def rows_by_batches(batches, key, folder):
    folder.mkdir()
    return released(model_of(batches, KMeans(3, key_uri=key, **BOUNDED), folder).releases_)


def test_batches_may_be_cut_and_written_in_any_way(key, tmp_path):
    expected = rows_by_batches([batch(POINTS)], key, tmp_path / "whole")
    turned = [batch(part[:, ::-1], NAMES[::-1]) for part in np.array_split(POINTS[::-1], 11)]
    assert rows_by_batches(turned, key, tmp_path / "turned") == expected
    more = [each.append_column("name", pa.array(["x"] * len(each))) for each in elements(POINTS, n_batches=300)]
    assert rows_by_batches([*more, batch(POINTS[:0])], key, tmp_path / "single") == expected
    coded = [
        pa.record_batch([each.column(0).dictionary_encode(), each.column(1)], names=list(NAMES))
        for each in elements(POINTS)
    ]
    assert rows_by_batches(coded, key, tmp_path / "coded") == expected


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_row_adds_the_same_beside_rows_of_another_type(algorithm, unit):
    """A row of float32 among rows of float64 becomes one of float64, and adds the same integers."""
    more = {"unit": unit} | ({"client_rows": 8} if unit == "client" else {})
    transform = KMeans(3, columns=NAMES, **FIT, **ALGORITHMS[algorithm], **more)
    made = [batch(POINTS[:150].astype(np.float32)), batch(POINTS[150:])]
    made = made if unit == "record" else list(enumerate(made))
    (together,), reader = blocks_of(transform, made)
    apart = [block for each in made for block in blocks_of(transform, [each])[0]]
    rounds, initial = transform._planned.rounds, transform._planned.initial
    states = loop.simulate(initial, rounds, [together.block], lake.KEY).states
    for round_, state in zip(rounds, states, strict=False):
        sums = [reader.sums(blocks, round_, state.broadcast()) for blocks in ([together], apart)]
        np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_blocks_that_are_full_are_given_on_and_hold_every_row_once(unit, monkeypatch):
    monkeypatch.setattr(rows, "GROUP_ROWS", 50)
    by_client = unit == "client"
    more = {"unit": unit} | ({"client_rows": 8} if by_client else {})
    made = elements(POINTS, CLIENTS if by_client else None, n_batches=60)
    blocks, _ = blocks_of(KMeans(3, **BOUNDED, **more), made)
    assert len(blocks) > 3
    found = np.concatenate([each.block.points for each in blocks])
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(POINTS, axis=0))
    if by_client:
        sizes = np.concatenate([np.diff(each.block.offsets) for each in blocks])
        assert sorted(sizes) == sorted(np.unique(CLIENTS, return_counts=True)[1])


@pytest.mark.parametrize("unit", ["record", "client"])
def test_no_rows_give_a_model_too(unit, key, tmp_path):
    """A missing model would reveal that there is no row."""
    more = {"unit": unit} | ({"client_rows": 5} if unit == "client" else {})
    found = model_of([], KMeans(3, key_uri=key, **BOUNDED, **more), tmp_path)
    assert found.cluster_centers_.shape == (3, 2)
    assert np.abs(found.noisy_sizes_).max() < 100


def blocks_of(transform, made):
    """Blocks as one worker makes them."""
    contract = transform._planned.contract
    read, put = rows.ReadFn(contract), rows.BlocksFn(contract)
    found = [each for element in made for each in read.process(element, beam.window.GlobalWindow())]
    if contract.by_client:
        found = [(client, [points for other, points in found if other == client]) for client in dict(found)]
    put.start_bundle()
    whole = [block for each in found for block in put.process(each, beam.window.GlobalWindow())]
    return [*whole, *(each.value for each in put.finish_bundle())], rows.BlockSums(contract)


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_unit_moves_no_sum_by_more_than_its_sensitivity(algorithm, unit):
    by_client = unit == "client"
    more = {"unit": unit} | ({"client_rows": 8} if by_client else {})
    transform = KMeans(3, columns=NAMES, **FIT, **ALGORITHMS[algorithm], **more)
    made = elements(POINTS, CLIENTS if by_client else None)
    far = np.tile([[1.4, -9.0]], (50 if by_client else 1, 1))
    one = (7777, batch(far)) if by_client else batch(far)
    blocks, reader = blocks_of(transform, made)
    states = loop.simulate(
        transform._planned.initial, transform._planned.rounds, [each.block for each in blocks], lake.KEY
    ).states
    seen = []
    for neighbors in ([one, *made], [*made, one]):
        for round_, state in zip(transform._planned.rounds, states, strict=False):
            sums = [
                reader.sums(some, round_, state.broadcast()) for some in (blocks, blocks_of(transform, neighbors)[0])
            ]
            moved, start = sums[1] - sums[0], 0
            for release in round_.plan.releases:
                part, start = moved[start : start + release.spec.size], start + release.spec.size
                assert sum(int(each) ** 2 for each in part) <= release.spec.sensitivity**2
            seen.append(moved.any())
    assert any(seen)


def test_a_plan_is_made_before_there_are_rows():
    transform = KMeans(3, **BOUNDED, unit="client", client_rows=5)
    assert isinstance(transform._planned.initial.privacy_unit, Clients)
    assert transform._planned.plan.epsilon <= 2.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": NAMES}, "clipping_norm or domain is required"),
        ({"domain": (-1, 1)}, "columns must be the names of the features, got None"),
        ({"domain": (-1, 1), "columns": 2}, "columns must be the names"),
        ({"domain": (-1, 1), "columns": "age"}, "columns must be the names"),
        ({"domain": {"age": (0, 1)}, "columns": NAMES}, "domain"),
        ({"domain": (-1, 1), "columns": NAMES, "unit": "client"}, "client_rows is required"),
        ({"domain": (-1, 1), "columns": NAMES, "unit": "person"}, "unit must be"),
        ({"domain": (-1, 1), "columns": NAMES, "ledger": "budget.sqlite"}, "ledger isn't supported"),
        ({"domain": (-1, 1), "columns": NAMES, "verbose": 1}, "verbose isn't supported"),
        ({"domain": (-1, 1), "columns": NAMES, "algorithm": "windows"}, "algorithm no longer accepts windows"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_built(given, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        KMeans(3, **FIT, **given)


def test_a_parameter_that_the_estimator_lacks_is_refused():
    with pytest.raises(TypeError, match="bound"):
        KMeans(3, **BOUNDED, bound=(-1, 1))


def test_a_high_epsilon_warns():
    with pytest.warns(PrivacyWarning, match="epsilon 50 is high"):
        KMeans(3, **BOUNDED | {"epsilon": 50.0})


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (batch(POINTS, ("age", "hour")), "'hours'"),
        (batch([[0.1, np.nan]]), "must hold finite numbers only, got a null, NaN or infinity"),
        (pa.record_batch([pa.array([0.1]), pa.array([None], pa.float64())], names=list(NAMES)), "got a null, NaN or"),
        (pa.record_batch([pa.array(["0.1"]), pa.array([0.5])], names=list(NAMES)), "'age'"),
        ({"age": 0.1, "hours": 0.5}, "each element must be a pyarrow.RecordBatch, got a dict"),
        ((1, batch(POINTS)), "each element must be a pyarrow.RecordBatch, got a tuple"),
    ],
)
def test_rows_that_break_the_contract_fail_the_pipeline(element, words, tmp_path):
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        run(built([element], KMeans(3, **BOUNDED), tmp_path))
    assert "0.1" not in str(caught.value)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (batch(POINTS), "each element must be a pair of a client id and a pyarrow.RecordBatch, got a RecordBatch"),
        ((1.0, batch(POINTS)), "client ids must be integers, strings or bytes, got float"),
        ((None, batch(POINTS)), "client ids must be integers, strings or bytes, got NoneType"),
        ((True, batch(POINTS)), "client ids must be integers, strings or bytes, got bool"),
    ],
)
def test_clients_without_a_plain_id_are_refused(element, words, tmp_path):
    with pytest.raises(InputError, match=re.escape(words)):
        run(built([element], KMeans(3, **BOUNDED, unit="client", client_rows=5), tmp_path))


class Name(str):
    """A text of another type, which runners would keep apart from equal ones."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("one", "other"), [(np.int64(5), 5), (np.str_("a"), "a"), (Name("a"), "a"), (np.bytes_(b"a"), b"a")]
)
def test_ids_that_are_equal_are_one_client(one, other):
    transform = KMeans(3, **BOUNDED, unit="client", client_rows=5)
    read = rows.ReadFn(transform._planned.contract)
    wide = beam.window.GlobalWindow()
    (left, _), (right, _) = (next(read.process((each, batch(POINTS[:2])), wide)) for each in (one, other))
    assert (type(left), left) == (type(right), right)


def test_more_rounds_than_flink_can_plan_are_refused():
    flags = ["--runner=FlinkRunner", "--flink_master=127.0.0.1:1"]
    pipeline = beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(flags))
    with pytest.raises(ConfigError, match="lloyd_steps must leave at most 22 rounds to one pipeline on a Flink"):
        pipeline | beam.Create(elements(POINTS)) | KMeans(3, **BOUNDED, algorithm="dp_lloyd", lloyd_steps=30)


def test_too_little_memory_is_said_without_the_number_of_rows(monkeypatch):
    blocks, reader = blocks_of(KMeans(3, **BOUNDED), elements(POINTS))
    monkeypatch.setattr(rows, "measure", lambda *_: np.zeros(1 << 50))
    planned = KMeans(3, **BOUNDED)._planned
    with pytest.raises(RunnerError, match="ran out of memory") as caught:
        reader.sums(blocks, planned.rounds[0], planned.initial.broadcast())
    assert caught.value.__cause__ is None
    assert not re.search(r"\d", str(caught.value))


@pytest.mark.parametrize(
    "option",
    [
        "--template_location=gs://bucket/graph",
        "--output_executable_path=graph.jar",
        "--update",
        "--create_from_snapshot=night",
    ],
)
def test_graphs_that_are_saved_or_go_on_with_an_earlier_run_are_refused(option):
    pipeline = beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions([option]))
    with pytest.raises(ConfigError, match="isn't supported, since a saved graph would repeat its noise"):
        pipeline | beam.Create(elements(POINTS)) | KMeans(3, **BOUNDED)


def test_every_run_of_a_pipeline_has_noise_of_its_own(tmp_path):
    """Else equal releases of two runs would reveal that no row has changed."""
    pipeline = built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path)
    run(pipeline)
    run(pipeline)
    one, other = kept(tmp_path / "models")
    pairs = zip(one.releases_, other.releases_, strict=True)
    assert not any((left.values == right.values).all() for left, right in pairs)


def test_a_transform_that_is_applied_twice_draws_twice(tmp_path):
    transform = KMeans(3, **BOUNDED)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    found = [model_of(elements(POINTS), transform, tmp_path / name) for name in ("one", "other")]
    assert not np.array_equal(found[0].releases_[0].values, found[1].releases_[0].values)


def drawing(pipeline):
    """Steps that draw in one translation of a graph, as workers unpickle them, and the bytes of all steps."""
    steps = pipeline.to_runner_api().components.transforms.values()
    payloads = [each.spec.payload for each in steps if each.spec.urn == common_urns.primitives.PAR_DO.urn]
    found = [proto_utils.parse_Bytes(each, beam_runner_api_pb2.ParDoPayload).do_fn.payload for each in payloads]
    functions = [pickler.loads(each)[0] for each in found]
    held = [each for each in functions if isinstance(each, HeldKeyFn)]
    return held, b"".join(bz2.decompress(base64.b64decode(each)) for each in found)


def test_workers_of_a_run_share_its_key_and_runs_do_not(tmp_path):
    """Workers pickle steps again. A step that is tried again in another process must repeat its noise."""
    kept_at = lake.write_key(tmp_path / "key")
    pipeline = built(elements(POINTS), KMeans(3, **BOUNDED, key_uri=kept_at), tmp_path)
    runs = [drawing(pipeline) for _ in range(3)]
    places = [{pickler.loads(pickler.dumps(each)).place for each in (*held, *held)} for held, _ in runs]
    assert [len(each) for each in places] == [1, 1, 1]
    assert len(set.union(*places)) == 3
    assert all(keys.is_run_place(place) for each in places for place in each)
    read = {lake.KEY, *(KeyFile(place).read_key() for each in places for place in each)}
    assert len(read) == 4
    assert not any(secret in graph for _, graph in runs for secret in read)
    assert all(kept_at.encode() in graph for _, graph in runs)


@pytest.mark.parametrize(
    "flags",
    [
        ("--direct_runner_bundle_repeat=3",),
        pytest.param(
            ("--direct_num_workers=2", "--direct_running_mode=multi_processing", "--direct_runner_bundle_repeat=3"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["in memory", "in processes"],
)
def test_steps_that_are_tried_again_repeat_their_noise(flags, tmp_path):
    """Else the mean of what attempts leave would have less noise than was paid for."""
    path = str(tmp_path / "releases")

    def leave(model):  # a local function travels to workers by value
        with open(path, "ab") as file:
            pickle.dump([(each.path, each.values.tobytes()) for each in model.releases_], file)

    pipeline = beam.Pipeline(options=beam_options(flags))
    _ = pipeline | beam.Create(elements(POINTS)) | KMeans(3, **BOUNDED) | "Leave" >> beam.Map(leave)
    run(pipeline)
    found = kept(path)
    assert len(found) == 4
    assert found == found[:1] * 4


def test_two_steps_of_one_transform_have_keys_of_their_own(tmp_path):
    transform, pipeline = KMeans(3, **BOUNDED), beam.Pipeline(options=beam_options(()))
    batches = pipeline | beam.Create(elements(POINTS))
    for label in ("one", "other"):
        _ = batches | label >> transform
    held, _ = drawing(pipeline)
    assert len({each.place for each in held}) == 2


def test_a_graph_that_nobody_has_translated_draws_nothing(tmp_path):
    """A runner that takes a pipeline as it is would draw the same in each run."""
    pipeline = built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path)
    for _, function in held_keys(pipeline):
        with pytest.raises(ConfigError, match="translates the graph, must be a readable file"):
            function.setup()


def test_a_key_that_others_may_read_is_refused(tmp_path):
    for place, words in ((tmp_path / "none", "readable file"), (lake.write_key(tmp_path / "open", mode=0o644), "0600")):
        with pytest.raises(ConfigError, match=words):
            built(elements(POINTS), KMeans(3, **BOUNDED, key_uri=str(place)), tmp_path)


def test_a_key_of_this_process_goes_with_it(tmp_path):
    code = (
        "from dapple_dp.beam.launch_keys import LaunchKeys; import os, stat\n"
        "key = LaunchKeys(None)._uri\n"
        "for each in (key, os.path.dirname(key)):\n    print(each, oct(stat.S_IMODE(os.stat(each).st_mode)))"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    uri, *modes = done.stdout.split()
    assert modes[::2] == ["0o600", "0o700"]
    assert pathlib.Path(uri).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


class Unbounded(rows.BlockSums):
    """Adds a row a thousand times."""

    def sums(self, shards, round_, state):
        return 1000 * super().sums(shards, round_, state)


class KnownKey(KeyFile):
    """Draws noise that its author knows."""

    def read_key(self):
        return lake.KEY


class Loud(Frame):
    """A frame that does not clip."""


def statistics(self, found):
    """An output before the noise."""
    return found | "Read" >> beam.ParDo(rows.ReadFn(self.planned.contract))


def counted(self, found):
    return found | beam.combiners.Count.Globally()


def twice(self, found):
    """Every row twice."""
    return honest(self, (found, found) | beam.Flatten())


def in_windows(self, found):
    return honest(self, found | beam.WindowInto(beam.window.SlidingWindows(60, 10)))


def mapped(self, found):
    return honest(self, found | beam.Map(lambda each: each))


def of_others(self, found):
    """Something private from elsewhere in the graph as a side input."""
    return honest(self, found | beam.Map(lambda each, other: each, beam.pvalue.AsList(found)))


def louder(self, found):
    """Less noise than was planned."""
    plan = self.planned.rounds[0].plan
    quiet = dataclasses.replace(
        plan, releases=tuple(dataclasses.replace(each, noise_multiplier=0.01) for each in plan.releases)
    )
    rounds = (self.planned.rounds[0]._replace(plan=quiet), *self.planned.rounds[1:])
    return honest(
        kmeans._PrivateRounds(planned=dataclasses.replace(self.planned, rounds=rounds), key_source=self.key_source),
        found,
    )


def shorter(self, found):
    """A round left out."""
    planned = dataclasses.replace(self.planned, rounds=self.planned.rounds[:-1])
    return honest(kmeans._PrivateRounds(planned=planned, key_source=self.key_source), found)


honest = kmeans._PrivateRounds.expand


@pytest.mark.parametrize(
    ("expand", "words"),
    [
        (statistics, "must give public data and releases, got exact private data"),
        (counted, "must run audited code"),
        (twice, "be given every statistic once"),
        (in_windows, "must be handed objects of audited types"),
        (mapped, "must run audited code"),
        (of_others, "must run audited code"),
        (louder, "belong to a round of the plan"),
        (shorter, "left out"),
    ],
)
def test_a_graph_in_which_something_bypasses_the_noise_is_refused_when_it_is_built(
    expand, words, monkeypatch, tmp_path
):
    monkeypatch.setattr(kmeans._PrivateRounds, "expand", expand)
    with pytest.raises(PrivacyFlowError, match=words) as caught:
        built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path)
    assert "Private" in str(caught.value) or "noise stages" in str(caught.value)


def test_another_way_to_add_up_rows_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(kmeans, "BlockSums", Unbounded)
    with pytest.raises(PrivacyFlowError, match="Unbounded, which is no audited type"):
        built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path)


def test_another_source_of_keys_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(LaunchKeys, "place", lambda _: KnownKey(""))
    with pytest.raises(PrivacyFlowError, match="KnownKey, which is no audited type"):
        built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path)


def test_a_state_of_other_types_is_refused(tmp_path):
    transform = KMeans(3, **BOUNDED)
    frame = transform._planned.initial.frame
    initial = dataclasses.replace(transform._planned.initial, frame=Loud(*frame))
    transform._planned = dataclasses.replace(transform._planned, initial=initial)
    with pytest.raises(PrivacyFlowError, match="Loud, which is no audited type"):
        built(elements(POINTS), transform, tmp_path)


def test_a_kept_key_does_not_draw(monkeypatch, tmp_path):
    kept_at = lake.write_key(tmp_path / "key")
    monkeypatch.setattr(LaunchKeys, "place", lambda _: KeyFile(kept_at))
    with pytest.raises(PrivacyFlowError, match="must hold the key of one run, got the kept key"):
        built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path)


def test_rounds_stand_in_the_graph_by_their_names(tmp_path):
    labels = []

    class Labels(beam.pipeline.PipelineVisitor):
        def enter_composite_transform(self, transform_node):
            labels.append(transform_node.full_label)

    built(elements(POINTS), KMeans(3, **BOUNDED), tmp_path, "ByPatient").visit(Labels())
    assert [each for each in labels if re.fullmatch(r"ByPatient/Private/Rounds/Lloyd\d\d", each)]
    assert len([each for each in labels if isinstance(each, str) and each.endswith("/Noise")]) == len(
        KMeans(3, **BOUNDED)._planned.rounds
    )


def test_the_example_of_the_docs_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KMeans(3, epsilon=1.0, delta=1e-6, domain=(-1, 1), columns=NAMES)
