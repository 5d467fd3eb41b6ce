"""Graphs that leak, each in its own way: all are refused with exit code 4 and the path from source to sink."""

import dataclasses
import functools

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows, SlidingWindows

from dapple_dp.pipelines.kmeans.plan import file_digests
from dapple_dp.pipelines.trusted_zone import sweep
from dapple_dp.schemas.arrivals.offsets import RecordPlace
from dapple_dp.schemas.arrivals.topic import MessageColumns
from dapple_dp.transforms.arrivals.consume import CopyMessages, TopicClient
from dapple_dp.transforms.files import publish
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.on_beam import exact_sums, noise_stage
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics, SumVectorsFn
from dapple_dp.transforms.on_beam.round import ServerFn, _StatisticFn
from dapple_dp.transforms.on_beam.steps import DeclaredMechanism
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.rounds.shard_sums import ShardSums
from dapple_dp.transforms.rounds.staged_state import StagedArrays, begin
from dapple_dp.transforms.tables.read import CheckRows, DigestFiles
from tests.scenes.graphs import HostileGraphs, Scene, assert_path, refused, understated

hostile = HostileGraphs()


@hostile("must be given public data and releases, got exact private data", "List", "Statistic", "Sum", "Server")
def forgotten_noise_stage(scene):
    return scene.exact() | "Server" >> scene.server() | "Publish" >> scene.publish()


@hostile("must be given public data and releases as a side input, got exact private data", "List", "Sum", "Broadcast")
def exact_count_in_a_side_input(scene):
    return scene.statistics("Broadcast", state=scene.exact())


@hostile("must be given public data and releases, got exact private data", "List", "Statistic", "Write")
def side_output_of_audited_code_to_a_sink(scene):
    tagged = scene.shards | "Statistic" >> beam.ParDo(
        _StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state)
    ).with_outputs("rows", main="sums")
    return tagged["rows"] | "Write" >> beam.ParDo(publish._WriteModelFn("out"))


@hostile("must run audited code, got test_hostile_pipelines:keep_rows", "List", "Statistic", "Keep")
def side_output_of_audited_code_to_an_unknown_consumer(scene):
    tagged = scene.shards | "Statistic" >> beam.ParDo(
        _StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state)
    ).with_outputs("rows", main="sums")
    return tagged.rows | "Keep" >> beam.Map(keep_rows)


@hostile("must be given public data and releases, got exact private data", "List", "Sum", "Noise", "Server")
def side_output_of_the_noise_stage(scene):
    draw = beam.ParDo(noise_stage._AddNoiseFn(scene.first.plan, KeyFile(scene.world.key))).with_outputs(
        "exact", main="released"
    )
    return (scene.exact() | "Noise" >> draw).exact | "Server" >> scene.server()


def keep_rows(rows):
    return rows


@hostile("must be given the sum of one statistic, got something else", "List", "Group", "Sum", "Noise")
def noise_on_something_without_sensitivity(scene):
    keyed = (scene.statistics(), scene.statistics("Second")) | "Join" >> beam.CoGroupByKey()
    return keyed | "Group" >> beam.GroupByKey() | "Sum" >> SumStatistics(size=3) | "Noise" >> scene.noise()


@hostile("must be given the sum of one statistic, got something else", "List", "Statistic", "Noise")
def noise_on_every_shard_by_itself(scene):
    return scene.statistics() | "Noise" >> scene.noise()


@hostile("must be given the sum of one statistic, got something else", "List", "Statistic", "Noise")
def noise_on_every_branch_by_itself(scene):
    branches = scene.statistics() | "Branch" >> beam.ParDo(exact_sums._BranchFn())
    sums = branches | "SumBranches" >> beam.CombinePerKey(SumVectorsFn(scene.first.plan.size))
    return sums | "Total" >> beam.ParDo(exact_sums.TotalFn()) | "Noise" >> scene.noise()


@hostile("must be given the sum of one statistic, got something else", "List", "Statistic", "Gather", "Noise")
def noise_on_every_branch_under_the_key_of_all(scene):
    branches = scene.statistics() | "Branch" >> beam.ParDo(exact_sums._BranchFn())
    sums = branches | "SumBranches" >> beam.CombinePerKey(SumVectorsFn(scene.first.plan.size))
    gathered = sums | "Gather" >> beam.ParDo(exact_sums._GatherBranchesFn())
    return gathered | "Total" >> beam.ParDo(exact_sums.TotalFn()) | "Noise" >> scene.noise()


@hostile("must be given public data and releases, got exact private data", "List", "Statistic", "Sum", "Begin")
def exact_sum_as_a_first_state(scene):
    staged = StagedArrays("initial.npz", "0" * 64)
    return scene.exact() | "Begin" >> beam.Map(begin, staged)


@hostile("must have the plan of the statistic that it is given, got feddp_kmeans/outer_product", "List", "Noise")
def release_under_a_wrong_sensitivity(scene):
    return scene.exact() | "Noise" >> scene.noise(understated(scene.first.plan))


@hostile("must belong to a round of the plan, got feddp_kmeans/outer_product", "List", "Statistic")
def round_under_a_wrong_sensitivity(scene):
    return scene.statistics(each=scene.first._replace(plan=understated(scene.first.plan)))


@hostile("must belong to a round of the plan, got feddp_kmeans/more", "List", "Statistic")
def round_that_nobody_accounted_for(scene):
    plan = dataclasses.replace(scene.first.plan, path="feddp_kmeans/more")
    return scene.statistics(each=scene.first._replace(plan=plan))


@hostile(
    "must be handed audited functions, got statistic_without_a_name.<locals>.<lambda>; state its sensitivity in "
    "transforms/core/stated_sensitivity.py once it is audited",
    "List",
    "Statistic",
)
def statistic_without_a_name(scene):
    return scene.statistics(each=scene.first._replace(statistic=lambda block, state: block.points[0]))


@hostile(
    "got releases that are not the parts of dapple_dp.transforms.kmeans.lloyd.rounds:means_statistic",
    "List",
    "Statistic",
)
def statistic_of_another_round(scene):
    return scene.statistics(each=scene.first._replace(statistic=scene.job.rounds[-1].statistic))


@hostile("must state the sensitivity of its statistic, got a statistic that states no", "List", "Statistic")
def server_step_in_place_of_a_statistic(scene):
    return scene.statistics(each=scene.first._replace(statistic=scene.first.step))


@hostile(
    "must be handed audited functions, got hostile_step; list it in transforms/core/allow_list.py once it is audited",
    "List",
    "Noise",
    "Server",
)
def server_step_that_nobody_audited(scene):
    each = scene.first._replace(step=functools.partial(hostile_step, step=scene.first.step))
    released = scene.exact() | "Noise" >> scene.noise()
    return released | "Server" >> beam.ParDo(ServerFn(each), AsSingleton(scene.state))


def hostile_step(state, releases, step):
    return step(state, releases)


class LeakFn(beam.DoFn):
    """Writes what it sees, and says so in a counter."""

    def process(self, element):
        beam.metrics.Metrics.counter("rows", "seen").inc(int(np.sum(element)))
        yield element


@hostile("must run audited code, got test_hostile_pipelines:LeakFn", "List", "Statistic", "Watch")
def unknown_function_between_source_and_noise(scene):
    statistics = scene.statistics() | "Watch" >> beam.ParDo(LeakFn())
    return scene.exact(statistics=statistics) | "Noise" >> scene.noise()


@hostile("must run audited code, got test_hostile_pipelines:LeakFn", "List", "Sum", "Watch")
def metrics_in_an_unlisted_function(scene):
    return scene.exact() | "Watch" >> beam.ParDo(LeakFn())


@hostile("must run audited code, got test_hostile_pipelines:", "List", "Sum", "Watch")
def lambda_on_private_data(scene):
    return scene.exact() | "Watch" >> beam.Map(lambda total: total)


@hostile("must run audited code", "Public", "Watch")
def lambda_on_public_data(scene):
    return scene.state | "Watch" >> beam.Map(lambda state: open("/dev/null").read())


def lookalike(original, **methods):
    """A class that looks like another one in everything but its methods."""
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    return type(original.__name__, (original,), names | methods)


@hostile("must run audited code, got dapple_dp.transforms.on_beam.noise_stage:_AddNoiseFn", "List", "Sum", "Noise")
def lookalike_of_the_noise_stage(scene):
    fake = lookalike(noise_stage._AddNoiseFn, process=lambda self, exact_sum: [exact_sum])
    return scene.exact() | "Noise" >> beam.ParDo(fake(scene.first.plan, KeyFile(scene.world.key)))


@hostile("must run audited code, got dapple_dp.transforms.on_beam.exact_sums:SumVectorsFn", "List", "Statistic", "Sum")
def lookalike_of_a_sum(scene):
    fake = lookalike(SumVectorsFn, extract_output=lambda self, accumulator: accumulator)
    return scene.statistics() | "Sum" >> beam.CombineGlobally(fake(3)).without_defaults()


@hostile("must run audited code, got dapple_dp.transforms.rounds.staged_state:begin", "Public", "Begin")
def lookalike_of_a_function(scene):
    def begin(state, staged):
        return state

    begin.__module__, begin.__qualname__ = "dapple_dp.transforms.rounds.staged_state", "begin"
    return scene.state | "Begin" >> beam.Map(begin, StagedArrays("initial.npz", "0" * 64))


@hostile("must run audited code, got dapple_dp.transforms.tables.read:_RowsFn", "List", "CheckRows/Rows")
def lookalike_of_a_whole_transform(scene):
    return scene.shards | "CheckRows" >> lookalike(CheckRows)()


@hostile("must run audited code, got dapple_dp.transforms.on_beam.noise_stage:_AddNoiseFn", "List", "Sum", "Noise")
def method_of_an_instance(scene):
    function = noise_stage._AddNoiseFn(scene.first.plan, KeyFile(scene.world.key))
    function._draw = lambda plan, exact_sum: (exact_sum,)
    return scene.exact() | "Noise" >> beam.ParDo(function)


@hostile("must run audited code", "List", "Checked")
def expansion_of_an_instance(scene):
    check = CheckRows()
    check.expand = lambda shards: shards | beam.Map(keep_rows)
    return scene.shards | "Checked" >> check


class Disguised(beam.PTransform):
    """Shows harmless steps, and asks the runner to run something else."""

    def expand(self, sums):
        return sums | "Noise" >> beam.Reshuffle()

    def to_runner_api_parameter(self, context):
        return "beam:transform:combine_globally:v1", None


@hostile("must run audited code, got test_hostile_pipelines:Disguised", "List", "Sum", "Disguise")
def primitive_in_the_guise_of_a_composite(scene):
    return scene.exact() | "Disguise" >> Disguised()


@hostile("must be given public data and releases, got exact private data", "List", "Sum", "Server")
def noise_on_something_else_and_the_exact_sum_published(scene):
    exact = scene.exact()
    _ = exact | "Noise" >> scene.noise()
    return exact | "Server" >> scene.server() | "Publish" >> scene.publish()


@hostile("must be given public data and releases, got exact private data", "List", "Sum", "Join", "Write")
def exact_sum_joined_with_a_release(scene):
    exact = scene.exact()
    released = exact | "Noise" >> scene.noise()
    joined = {"sum": exact, "releases": released} | "Join" >> beam.CoGroupByKey()
    return joined | "Write" >> beam.ParDo(publish._WriteModelFn("out"))


@hostile("must be given public data and releases, got exact private data", "List", "Sum", "Both", "Server")
def exact_sum_flattened_with_a_release(scene):
    exact = scene.exact()
    both = (exact | "Noise" >> scene.noise(), exact) | "Both" >> beam.Flatten()
    return both | "Server" >> scene.server()


@hostile("must stay out of a job whose outputs are public, got a step of the trusted zone", "List", "Sum", "Keep")
def private_sink_in_a_private_fit(scene):
    return scene.exact() | "Keep" >> PrivateSink(write=sweep._write_part, places=({}, "out"))


@hostile("must stay out of a job whose outputs are public, got a step of the trusted zone", "Digests", "Stage")
def digests_of_files_staged_by_a_private_fit(scene):
    digests = scene.root | "Digests" >> DigestFiles(listing=scene.job.source.listing)
    return digests | "Stage" >> PrivateSink(write=file_digests._write_block, places=("out",))


def publish_nothing(state):
    raise AssertionError


@hostile("must stay out of a job whose outputs are public, got a step of the trusted zone", "Public", "Keep")
def private_sink_for_public_data_in_a_private_fit(scene):
    return scene.state | "Keep" >> PrivateSink(write=publish_nothing, places=())


@hostile("must stay out of a job whose outputs are public, got a step of the trusted zone", "Copies")
def messages_copied_in_a_private_fit(scene):
    client, columns = TopicClient("localhost:9092", "visits", ""), MessageColumns((), "x", "", 80)
    places = (RecordPlace("record.json", "0" * 64, "copies"),)
    return scene.root | "Copies" >> CopyMessages(places=places, client=client, columns=columns)


@hostile("must draw a planned release that was not drawn before, got feddp_kmeans/outer_product", "List", "Again")
def second_noise_on_one_sum(scene):
    exact = scene.exact()
    _ = exact | "Noise" >> scene.noise()
    return exact | "Again" >> scene.noise()


@hostile("must draw a planned release that was not drawn before, got feddp_kmeans/outer_product", "List", "Again")
def second_noise_on_another_sum_of_the_same_round(scene):
    _ = scene.exact() | "Noise" >> scene.noise()
    return scene.exact("SumAgain", scene.statistics("StatisticAgain")) | "Again" >> scene.noise()


@hostile("must be given every statistic once, got some several times", "List", "Twice", "Sum", "Noise")
def statistic_added_up_twice(scene):
    statistics = scene.statistics()
    twice = (statistics, statistics) | "Twice" >> beam.Flatten()
    return scene.exact(statistics=twice) | "Noise" >> scene.noise()


@hostile("must be given every statistic once, got some several times", "List", "Statistic", "Sum", "Noise")
def shards_read_twice(scene):
    again = scene.world.shards(scene.root, scene.job, "ListAgain")
    shards = (scene.shards, again) | "Twice" >> beam.Flatten()
    return scene.exact(statistics=scene.statistics(shards=shards)) | "Noise" >> scene.noise()


@hostile("must be given every statistic once, got some several times", "List", "Windows", "Sum", "Noise")
def sums_of_sliding_windows(scene):
    shards = scene.shards | "Windows" >> beam.WindowInto(SlidingWindows(60, 10))
    return scene.exact(statistics=scene.statistics(shards=shards)) | "Noise" >> scene.noise()


@hostile("must be given every statistic once, got some several times", "List", "Panes", "Sum", "Noise")
def sums_of_every_pane(scene):
    panes = beam.WindowInto(
        GlobalWindows(), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.ACCUMULATING
    )
    shards = scene.shards | "Panes" >> panes
    return scene.exact(statistics=scene.statistics(shards=shards)) | "Noise" >> scene.noise()


@hostile("must be given public data and releases as a side input, got exact private data", "List", "Sum")
def sum_with_a_default(scene):
    return scene.statistics() | "Sum" >> beam.CombineGlobally(SumVectorsFn(scene.first.plan.size))


@hostile("must run audited code, got apache_beam.transforms.combiners:CountCombineFn", "List", "Total")
def counted_rows(scene):
    return scene.shards | "Total" >> beam.combiners.Count.Globally()


@hostile("must run audited code", "List", "Write")
def text_sink_of_beam(scene):
    return scene.exact() | "Write" >> beam.io.WriteToText("out.txt")


@hostile("must run audited code", "Read")
def reader_that_is_no_known_source(scene):
    return scene.root | "Read" >> beam.io.ReadFromParquet(scene.world.path + "/*")


@hostile("must be given public data and releases, got exact private data", "List", "Hide/Sum", "Publish/Write")
def leak_inside_of_nested_composites(scene):
    class Hide(beam.PTransform):
        def expand(self, shards):
            return scene.exact()

    return scene.shards | "Hide" >> Hide() | "Publish" >> scene.publish()


class Unlisted(DeclaredMechanism):
    """Declares itself, but nobody has audited it."""

    def declared(self):
        return "something"

    def expand(self, sums):
        return sums | "Noise" >> beam.ParDo(LeakFn())


@hostile("must run audited code, got test_hostile_pipelines:Unlisted", "List", "Sum", "Declare")
def mechanism_that_nobody_listed(scene):
    return scene.exact() | "Declare" >> Unlisted()


@pytest.mark.parametrize("name", hostile.cases)
def test_a_leak_is_refused_with_its_path(world, name):
    build, words, labels = hostile.cases[name]
    sentence = refused(lambda root: build(Scene(world, root)), world.job().promise)
    assert words in sentence
    assert_path(sentence, labels)
