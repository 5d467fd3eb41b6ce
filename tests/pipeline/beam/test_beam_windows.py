"""`dapple_dp.beam.KMeans` on rows in windows: each window has a model, which is that of a job on its rows."""

import datetime
import pickle

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark, Repeatedly
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)

from dapple_dp import DPKMeans
from dapple_dp.beam import KMeans, kmeans, rows
from dapple_dp.beam.rows import ReadFn
from dapple_dp.beam.windows import EachWindowFn, PublicWindows
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyFlowError
from dapple_dp.transforms.core import keys, loop
from tests.pipeline.beam.test_beam_kmeans import BOUNDED, FIT, NAMES, POINTS, batch, keep, kept, released, run
from tests.scenes import lake

SECOND = 1_000_000
THREE = (0, 180)
"""A range of three windows of a minute."""
OF_WINDOWS = {0: POINTS[:200], 60: POINTS[200:]}
"""Rows by the start of their window; the third one has none."""


@pytest.fixture
def key(tmp_path):
    """A key that draws as it is, but for windows."""
    with lake.written_keys_draw():
        yield lake.write_key(tmp_path / "key")


def leave(model, path, window=beam.DoFn.WindowParam):
    keep((window.start.micros // SECOND, model), path)


def events(points_of=OF_WINDOWS, n_batches=4):
    """Batches at times within their windows, in turn."""
    return [
        TimestampedValue(batch(part), start + 10 * number)
        for start, points in points_of.items()
        for number, part in enumerate(np.array_split(points, n_batches))
    ]


def packed(event):
    """Flink's TestStream takes bytes alone."""
    return TimestampedValue(pickle.dumps(event.value), event.timestamp)


def unpacked(element):
    return pickle.loads(element) if isinstance(element, bytes) else element


def models_of(source, folder, key, flags=()):
    """Models by the start of their window."""
    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)) if flags else beam_options(()))
    found = (
        pipeline
        | source
        | beam.Map(unpacked)
        | "Minutes" >> beam.WindowInto(FixedWindows(60))
        | KMeans(3, key_uri=key, windows=THREE, **BOUNDED)
    )
    _ = found | "Leave" >> beam.Map(leave, str(folder / "models"))
    _ = found.releases | "LeaveReleases" >> beam.Map(leave, str(folder / "releases"))
    run(pipeline)
    pairs = kept(folder / "models")
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def job_of_window(points, start, monkeypatch):
    """Returns what a job on the rows of a window releases, under the window's key."""
    drawing = keys.window_key(lake.KEY, start * SECOND, (start + 60) * SECOND)
    monkeypatch.setattr("dapple_dp.pipelines.run.run_keys.memory_key", lambda: loop.RunKey(drawing))
    return DPKMeans(3, **FIT, domain=(-1, 1)).fit(pa.table(dict(zip(NAMES, points.T, strict=True))))


def check_windows(found, monkeypatch, points_of=OF_WINDOWS):
    for start, points in points_of.items():
        expected = job_of_window(points, start, monkeypatch)
        assert released(found[start].releases_) == released(expected.releases_)
        assert found[start].cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()


def test_each_window_releases_the_bytes_of_a_job_on_its_rows(key, tmp_path, monkeypatch):
    found = models_of(beam.Create(events()), tmp_path, key)
    assert sorted(found) == [0, 60, 120]
    check_windows(found, monkeypatch)
    releases = kept(tmp_path / "releases")
    for start, model in found.items():
        assert released(each for at, each in releases if at == start) == released(model.releases_)


def test_a_row_moves_the_releases_of_its_window_alone(key, tmp_path):
    """Else windows would not compose in parallel."""
    made = []
    for name, more in (("without", []), ("with", [TimestampedValue(batch([[0.9, -0.9]]), 61)])):
        (tmp_path / name).mkdir()
        made.append(models_of(beam.Create([*events(), *more]), tmp_path / name, key))
    for start in (0, 60, 120):
        one, other = (released(found[start].releases_) for found in made)
        assert (one == other) == (start != 60)


def streamed(*, with_late=True):
    """Rows that come while windows close: one that is late, some out of the range, and windows in any order."""
    first, second = ([packed(each) for each in events({start: part})] for start, part in OF_WINDOWS.items())
    late, outside = (packed(TimestampedValue(batch(POINTS[:7]), at)) for at in (30, 500))
    return (
        test_stream.TestStream(coder=BytesCoder())
        .add_elements([second[0], *first[:2], outside])
        .advance_watermark_to(20)
        .add_elements([*first[2:], *second[1:3]])
        .advance_watermark_to(70)
        .add_elements([late, second[3]] if with_late else second[3:])
        .advance_watermark_to_infinity()
        .with_output_types(bytes)
    )


def test_a_stream_gives_a_model_when_a_window_is_over(key, tmp_path, monkeypatch):
    found = models_of(streamed(), tmp_path, key, ("--runner=DirectRunner", "--streaming"))
    assert sorted(found) == [0, 60, 120]
    check_windows(found, monkeypatch)


def test_late_rows_of_any_branch_are_dropped(key, tmp_path, monkeypatch):
    """A pane of late rows would get the noise of its window again. Blocks of a window are of up to 32 keys."""
    late = [packed(TimestampedValue(batch([[number / 100, 0]]), 30)) for number in range(100)]
    contract = KMeans(3, **BOUNDED)._planned.contract
    read = rows.ReadFn(contract, PublicWindows(0, 60 * SECOND, 3))
    assert len({next(read.process(unpacked(each.value), IntervalWindow(0, 60)))[0] for each in late}) > 28
    first, second = ([packed(each) for each in events({start: part})] for start, part in OF_WINDOWS.items())
    source = (
        test_stream.TestStream(coder=BytesCoder())
        .add_elements([*first, *second])
        .advance_watermark_to(70)
        .add_elements(late[:50])
        .advance_watermark_to(110)
        .add_elements(late[50:])
        .advance_watermark_to_infinity()
        .with_output_types(bytes)
    )
    found = models_of(source, tmp_path, key, ("--runner=DirectRunner", "--streaming"))
    assert sorted(found) == [0, 60, 120]
    check_windows(found, monkeypatch)


def test_a_stream_without_rows_has_models_of_all_windows(key, tmp_path, monkeypatch):
    source = test_stream.TestStream(coder=BytesCoder()).advance_watermark_to_infinity().with_output_types(bytes)
    found = models_of(source, tmp_path, key, ("--runner=DirectRunner", "--streaming"))
    assert sorted(found) == [0, 60, 120]
    assert len({each.releases_[0].values.tobytes() for each in found.values()}) == 3


@pytest.mark.parametrize("other", [FixedWindows(30), FixedWindows(60, 30), SlidingWindows(60, 20), GlobalWindows()])
def test_rows_that_flatten_brings_from_other_windows_are_refused(other):
    """Beam says that they are in the windows of the first input, and runs. Other windows would be released apart."""
    pipeline = beam.Pipeline(options=beam_options(()))
    parts = [
        pipeline | f"{name} rows" >> beam.Create(events()) | name >> beam.WindowInto(windowfn)
        for name, windowfn in (("first", FixedWindows(60)), ("other", other))
    ]
    mixed = parts | beam.Flatten()
    assert mixed.windowing.windowfn == FixedWindows(60)
    _ = mixed | KMeans(3, windows=THREE, **BOUNDED)
    with pytest.raises((InputError, ValueError), match=r"elements must be in windows|Error decoding input"):
        run(pipeline)


@pytest.mark.parametrize("unit", [{}, {"unit": "client", "client_rows": 5}], ids=["record", "client"])
def test_rows_of_windows_in_rows_without_are_refused(unit):
    """A client would be bounded once in each window, and each window be released, though none is public."""
    read = ReadFn(KMeans(3, **unit, **BOUNDED)._planned.contract)
    element = ("one", batch(POINTS[:2])) if unit else batch(POINTS[:2])
    assert len(list(read.process(element, GlobalWindow()))) == 1
    with pytest.raises(InputError, match="all elements must be in windows of one function"):
        list(read.process(element, IntervalWindow(0, 60)))


def test_two_steps_on_the_same_windows_share_no_noise(tmp_path):
    """Each spends for itself: their releases are not those of one step."""
    pipeline = beam.Pipeline(options=beam_options(()))
    made = pipeline | beam.Create(events()) | beam.WindowInto(FixedWindows(60))
    for name, windows in (("one", THREE), ("other", (60, 180))):
        models = made | name >> KMeans(3, windows=windows, **BOUNDED)
        _ = models | f"Leave {name}" >> beam.Map(leave, str(tmp_path / name))
    run(pipeline)
    one, other = (dict(kept(tmp_path / name)) for name in ("one", "other"))
    assert (sorted(one), sorted(other)) == ([0, 60, 120], [60, 120])
    drawn = [model.releases_[0].values.tobytes() for found in (one, other) for model in found.values()]
    assert len(set(drawn)) == 5


def test_steps_that_are_tried_again_repeat_the_noise_of_their_window(tmp_path):
    pipeline = beam.Pipeline(options=beam_options(("--direct_runner_bundle_repeat=3",)))
    models = placed()(pipeline | beam.Create(events())) | KMeans(3, windows=THREE, **BOUNDED)
    _ = models | beam.Map(leave, str(tmp_path / "models"))
    run(pipeline)
    found = {(start, str(released(model.releases_))) for start, model in kept(tmp_path / "models")}
    assert len(found) == 3


def again(self, found):
    """Sums of each moment."""
    many = beam.WindowInto(
        FixedWindows(60), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.ACCUMULATING
    )
    return honest(self, found | many)


def narrower(self, found):
    return honest(self, found | beam.WindowInto(FixedWindows(30)))


def by_rows(self, found):
    """Windows that have rows say so: their models come from the rows."""
    self._public = lambda rows, label, value: rows | label >> beam.ParDo(EachWindowFn(self.windows))
    return honest(self, found)


def of_rows(self, found):
    """Statistics as a state."""
    self._public = lambda rows, label, value: rows | label >> beam.ParDo(ReadFn(self.planned.contract, self.windows))
    return honest(self, found)


honest = kmeans._PrivateRounds.expand


@pytest.mark.parametrize(
    ("expand", "words"),
    [
        (again, "be given every statistic once"),
        (narrower, "be given every statistic once"),
        (by_rows, "must be given public data"),
        (of_rows, "must be given public data"),
    ],
)
def test_a_graph_that_releases_a_window_again_or_by_its_rows_is_refused(expand, words, monkeypatch):
    monkeypatch.setattr(kmeans._PrivateRounds, "expand", expand)
    made = placed()(beam.Pipeline(options=beam_options(())) | beam.Create(events()))
    with pytest.raises(PrivacyFlowError, match=words):
        made | KMeans(3, windows=THREE, **BOUNDED)


def test_the_statement_says_of_which_window_it_is_and_what_holds_for_all(key, tmp_path):
    found = models_of(beam.Create(events({60: POINTS[:50]})), tmp_path, key)
    stated = found[60].privacy_
    assert stated.window == "1970-01-01T00:01:00Z to 1970-01-01T00:02:00Z"
    assert f", the window {stated.window}, and all windows of the stream together\n" in str(stated)
    assert "one unit in one window; all other units keep their windows, and the same of their rows are late\n" in str(
        stated
    )
    assert f"This holds for the window {stated.window}, and all windows" in found[60].report()._repr_html_()
    assert stated.epsilon <= BOUNDED["epsilon"]
    found[60].save(str(tmp_path / "model"))
    for_readers = " ".join((tmp_path / "model/deployment.yaml").read_text().split())
    assert "Epsilon is the composed privacy loss of all releases at this delta" in for_readers
    assert f"One window; epsilon and delta are of the window {stated.window}, and all windows" in for_readers
    assert DPKMeans.load(str(tmp_path / "model")).privacy_.window == stated.window


def test_rows_of_windows_in_one_bundle_stay_apart(monkeypatch):
    monkeypatch.setattr(rows, "GROUP_ROWS", 30)
    windows, contract = PublicWindows(0, 60 * SECOND, 3), KMeans(3, **BOUNDED)._planned.contract
    read, put = rows.ReadFn(contract, windows), rows.BlocksFn(contract, windows)
    put.start_bundle()
    found = []
    for number, part in enumerate(np.array_split(POINTS[:100], 10)):
        window = IntervalWindow(60 * (number % 2), 60 * (number % 2) + 60)
        ((branch, points),) = read.process(batch(part), window)
        found += [(window, block) for block in put.process((branch, iter([points])), window)]
    assert len(found) == 2
    found += [(each.windows[0], each.value) for each in put.finish_bundle()]
    for number in range(2):
        held = [block.block.points for window, block in found if window.start == 60 * number]
        expected = np.concatenate(np.array_split(POINTS[:100], 10)[number::2])
        np.testing.assert_array_equal(np.concatenate(held), expected)
    assert list(put.finish_bundle()) == []
    assert list(read.process(batch(POINTS), IntervalWindow(180, 240))) == []


def placed(**how):
    return lambda made: made | beam.WindowInto(FixedWindows(60), **how)


REFUSED = {
    "sliding windows, which release a row": lambda made: made | beam.WindowInto(SlidingWindows(60, 10)),
    "sessions, whose limits depend on private rows": lambda made: made | beam.WindowInto(Sessions(60)),
    "OwnWindows": lambda made: made | beam.WindowInto(OwnWindows(60)),
    "a trigger that may fire early, late or again": placed(
        trigger=AfterWatermark(early=AfterCount(1)), accumulation_mode=AccumulationMode.DISCARDING
    ),
    "accumulating panes": placed(accumulation_mode=AccumulationMode.ACCUMULATING),
    "allowed_lateness, after which a window is released again": placed(allowed_lateness=5),
    "a timestamp_combiner other than the end of the window": placed(
        timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST
    ),
}


class OwnWindows(FixedWindows):
    """Decides by rows."""


@pytest.mark.parametrize("fault", REFUSED)
def test_windows_by_which_a_row_could_be_released_again_are_refused(fault):
    made = REFUSED[fault](beam.Pipeline(options=beam_options(())) | beam.Create(events()))
    with pytest.raises(ConfigError, match=f"in FixedWindows that fire once, got {fault}"):
        made | KMeans(3, windows=THREE, **BOUNDED)


def test_a_late_trigger_of_the_global_window_is_refused():
    made = beam.Pipeline(options=beam_options(())) | beam.Create([batch(POINTS)])
    late = AfterWatermark(late=AfterCount(1))
    made |= beam.WindowInto(GlobalWindows(), trigger=late, accumulation_mode=AccumulationMode.DISCARDING)
    with pytest.raises(ConfigError, match="got a trigger that may fire early, late or again"):
        made | KMeans(3, **BOUNDED)


def test_a_stream_needs_windows_and_clients_have_none():
    made = beam.Pipeline(options=beam_options(())) | streamed()
    with pytest.raises(ConfigError, match="got a stream in the global window, which has no end"):
        made | KMeans(3, **BOUNDED)
    with pytest.raises(ConfigError, match="got windows with unit client, since a client can be in several"):
        placed()(made) | "ByClient" >> KMeans(3, windows=THREE, **BOUNDED, unit="client", client_rows=5)


UTC = datetime.UTC


@pytest.mark.parametrize(
    "windows",
    [
        None,
        60,
        (0,),
        (0, 60, 120),
        ("1970-01-01", "1970-01-02"),
        (0, 0),
        (60, 0),
        (0, 90),
        (30, 90),
        (0, 60 * 100_001),
        (0, float("inf")),
        (10**12, 10**12 + 60),
        (datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 2)),
    ],
    ids=str,
)
def test_windows_that_have_models_are_public_and_whole(windows):
    """Without a list, that a window has a model would reveal that it has a row."""
    made = beam.Pipeline(options=beam_options(())) | beam.Create(events()) | beam.WindowInto(FixedWindows(60))
    with pytest.raises(ConfigError, match="since rows must not decide which windows have models"):
        made | KMeans(3, windows=windows, **BOUNDED)


@pytest.mark.parametrize(
    ("windows", "offset"),
    [
        ((0, 3600), 0),
        ((30, 3630), 30),
        ((-3600, 0), 0),
        ((datetime.datetime(2026, 1, 1, tzinfo=UTC), datetime.datetime(2026, 1, 2, tzinfo=UTC)), 0),
    ],
)
def test_windows_may_be_named_as_beam_names_times(windows, offset):
    pipeline = beam.Pipeline(options=beam_options(()))
    made = pipeline | beam.Create(events()) | beam.WindowInto(FixedWindows(60, offset))
    assert (made | KMeans(3, windows=windows, **BOUNDED)).windowing.windowfn == FixedWindows(60, offset)


def test_rows_in_the_global_window_have_no_list_of_windows():
    made = beam.Pipeline(options=beam_options(())) | beam.Create([batch(POINTS)])
    with pytest.raises(ConfigError, match="windows isn't supported for rows in the global window"):
        made | KMeans(3, windows=THREE, **BOUNDED)
