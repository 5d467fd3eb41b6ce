"""Graphs that leak, each in its own way: all are refused with exit code 4 and the path from source to sink."""

import dataclasses
import functools
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsDict, AsSingleton
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows, SlidingWindows

from pipelines import fit, graph, pooled_fit, sweep
from pipelines.prepared_fit import message_contract
from schemas.errors import PrivacyFlowError
from schemas.flow import TRUSTED_ZONE, Promise, Zone
from schemas.masked_message import MaskedMessages
from schemas.plan import Geometry, Mechanism, PrivacyUnit
from schemas.profile_config import ProfileConfig
from tests import lake
from tests.graphs import World, verdict
from tests.models import write_model
from transforms import noise, publish
from transforms.aggregation import SumKeyedStatistics, SumStatistics, SumVectorsFn
from transforms.cells import _CellStatisticsFn
from transforms.client_messages import UnmaskReleases, UploadMessages
from transforms.declared_mechanism import DeclaredMechanism
from transforms.evaluate_models import EvaluateModels
from transforms.masked_rounds import RunMaskedRounds
from transforms.masked_sum import AggregateMasked, SumMessagesFn
from transforms.measure_clusters import SUMS, MeasureClusters
from transforms.noise import AddKeyedNoise, AddMaskedNoise, AddNoise
from transforms.numerics.nearest import NearestCenters
from transforms.pipeline_dp_noise import AddPipelineDPNoise
from transforms.private_sink import PrivateSink
from transforms.profile_accounting import calibrate
from transforms.profile_rows import ProfileParams
from transforms.publish import PublishModel
from transforms.read import CheckRows
from transforms.rounds import _StatisticFn, server_step
from transforms.stated_sensitivity import STATED, understatement

HOSTILE = {}


def hostile(words, *labels):
    """A graph that must be refused with these words and with these labels, in this order, in its path."""

    def keep(build):
        HOSTILE[build.__name__] = (build, words, labels)
        return build

    return keep


class Scene:
    """The parts of a private fit of one round, to be put together wrongly.

    Attributes:
      shards: private.
      state: public: what is broadcast in the first round.
      first: the first round of the job.
    """

    def __init__(self, world, root, job=None):
        self.world, self.root = world, root
        self.job = job or world.job()
        self.first = self.job.rounds[0]
        self.shards = world.shards(root, self.job)
        self.state = root | "Public" >> beam.Create([self.job.initial], reshuffle=False)

    def statistics(self, label="Statistic", each=None, state=None, shards=None):
        fn = _StatisticFn(self.job.contract, each or self.first)
        shards = self.shards if shards is None else shards
        return shards | label >> beam.ParDo(fn, AsSingleton(self.state if state is None else state))

    def exact(self, label="Sum", statistics=None):
        statistics = self.statistics() if statistics is None else statistics
        return statistics | label >> SumStatistics(size=self.first.plan.size)

    def noise(self, plan=None):
        return AddNoise(plan=plan or self.first.plan, key_uri=self.world.key)

    def publish(self):
        return PublishModel(folder=str(self.world.folder / "out"))

    def server(self):
        return beam.Map(server_step, AsSingleton(self.state), self.first)


@hostile("must be given public data and releases, got exact private data", "List", "Statistic", "Sum", "Server")
def forgotten_noise_stage(scene):
    return scene.exact() | "Server" >> scene.server() | "Publish" >> scene.publish()


@hostile("must be given public data and releases as a side input, got exact private data", "List", "Sum", "Broadcast")
def exact_count_in_a_side_input(scene):
    return scene.statistics("Broadcast", state=scene.exact())


@hostile("must be given public data and releases, got exact private data", "List", "Statistic", "Write")
def side_output_of_audited_code_to_a_sink(scene):
    tagged = scene.shards | "Statistic" >> beam.ParDo(
        _StatisticFn(scene.job.contract, scene.first), AsSingleton(scene.state)
    ).with_outputs("rows", main="sums")
    return tagged["rows"] | "Write" >> beam.FlatMap(publish._write_model, "out")


@hostile("must run audited code, got test_hostile_pipelines:keep_rows", "List", "Statistic", "Keep")
def side_output_of_audited_code_to_an_unknown_consumer(scene):
    tagged = scene.shards | "Statistic" >> beam.ParDo(
        _StatisticFn(scene.job.contract, scene.first), AsSingleton(scene.state)
    ).with_outputs("rows", main="sums")
    return tagged.rows | "Keep" >> beam.Map(keep_rows)


@hostile("must be given public data and releases, got exact private data", "List", "Sum", "Noise", "Server")
def side_output_of_the_noise_stage(scene):
    draw = beam.ParDo(noise._AddNoiseFn(scene.first.plan, scene.world.key)).with_outputs("exact", main="released")
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


def understated(plan, factor=10):
    """The plan of a round whose first release promises less than it should."""
    release = plan.releases[0]
    spec = dataclasses.replace(release.spec, sensitivity=release.spec.sensitivity // factor)
    return dataclasses.replace(plan, releases=(dataclasses.replace(release, spec=spec), *plan.releases[1:]))


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


@hostile("must be handed audited functions, got statistic_without_a_name.<locals>.<lambda>", "List", "Statistic")
def statistic_without_a_name(scene):
    return scene.statistics(each=scene.first._replace(statistic=lambda block, state: block.points[0]))


@hostile("got releases that are not the parts of transforms.feddp_kmeans:means_statistic", "List", "Statistic")
def statistic_of_another_round(scene):
    return scene.statistics(each=scene.first._replace(statistic=scene.job.rounds[-1].statistic))


@hostile("must state the sensitivity of its statistic, got a statistic that states no", "List", "Statistic")
def server_step_in_place_of_a_statistic(scene):
    return scene.statistics(each=scene.first._replace(statistic=scene.first.step))


@hostile("must be handed audited functions, got hostile_step", "List", "Noise", "Server")
def server_step_that_nobody_audited(scene):
    each = scene.first._replace(step=functools.partial(hostile_step, step=scene.first.step))
    released = scene.exact() | "Noise" >> scene.noise()
    return released | "Server" >> beam.Map(server_step, AsSingleton(scene.state), each)


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


@hostile("must run audited code, got transforms.noise:_AddNoiseFn", "List", "Sum", "Noise")
def lookalike_of_the_noise_stage(scene):
    fake = lookalike(noise._AddNoiseFn, process=lambda self, exact_sum: [exact_sum])
    return scene.exact() | "Noise" >> beam.ParDo(fake(scene.first.plan, scene.world.key))


@hostile("must run audited code, got transforms.aggregation:SumVectorsFn", "List", "Statistic", "Sum")
def lookalike_of_a_sum(scene):
    fake = lookalike(SumVectorsFn, extract_output=lambda self, accumulator: accumulator)
    return scene.statistics() | "Sum" >> beam.CombineGlobally(fake(3)).without_defaults()


@hostile("must run audited code, got transforms.rounds:server_step", "List", "Sum", "Noise", "Server")
def lookalike_of_a_function(scene):
    def server_step(releases, state, each):
        return state

    server_step.__module__, server_step.__qualname__ = "transforms.rounds", "server_step"
    released = scene.exact() | "Noise" >> scene.noise()
    return released | "Server" >> beam.Map(server_step, AsSingleton(scene.state), scene.first)


@hostile("must run audited code, got transforms.read:_rows", "List", "CheckRows/Rows")
def lookalike_of_a_whole_transform(scene):
    return scene.shards | "CheckRows" >> lookalike(CheckRows)()


@hostile("must run audited code, got transforms.noise:_AddNoiseFn", "List", "Sum", "Noise")
def method_of_an_instance(scene):
    function = noise._AddNoiseFn(scene.first.plan, scene.world.key)
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
    return joined | "Write" >> beam.Map(publish._model)


@hostile("must be given public data and releases, got exact private data", "List", "Sum", "Both", "Server")
def exact_sum_flattened_with_a_release(scene):
    exact = scene.exact()
    both = (exact | "Noise" >> scene.noise(), exact) | "Both" >> beam.Flatten()
    return both | "Server" >> scene.server()


@hostile("must stay out of a job whose outputs are public, got a step of the trusted zone", "List", "Sum", "Keep")
def private_sink_in_a_private_fit(scene):
    return scene.exact() | "Keep" >> PrivateSink(write=sweep._write_part, places=({}, "out"))


def publish_nothing(state):
    raise AssertionError


@hostile("must stay out of a job whose outputs are public, got a step of the trusted zone", "Public", "Keep")
def private_sink_for_public_data_in_a_private_fit(scene):
    return scene.state | "Keep" >> PrivateSink(write=publish_nothing, places=())


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


@hostile("must be given public data and releases, got exact private data", "List", "Hide/Sum", "Publish/Model")
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


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("hostile"))


def refused(build, promise):
    """The sentence with which a graph is refused."""
    with pytest.raises(PrivacyFlowError) as caught:
        verdict(build, promise)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_path(sentence, labels):
    path = sentence.rpartition(" Path: ")[2].removesuffix(".").split(" -> ")
    positions = [next(at for at, found in enumerate(path) if label in found) for label in labels]
    assert positions == sorted(positions)
    assert labels[0] in path[0]
    assert labels[-1] in path[-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_leak_is_refused_with_its_path(world, name):
    build, words, labels = HOSTILE[name]
    sentence = refused(lambda root: build(Scene(world, root)), world.job().promise)
    assert words in sentence
    assert_path(sentence, labels)


class MaskedScene(Scene):
    """The same job under masks."""

    def __init__(self, world, root):
        super().__init__(world, root, world.job(trust="masked"))
        self.masking = world.masking()
        self.contract = message_contract(self.job)

    def messages(self):
        return self.shards | "Upload" >> UploadMessages(
            round=self.first, state=self.state, contract=self.contract, masking=self.masking
        )

    def unmask(self):
        return UnmaskReleases(plan=self.first.plan, state=self.state, masking=self.masking)


MASKED = {}


def masked(words, *labels):
    """As `hostile`, of a masked job."""

    def keep(build):
        MASKED[build.__name__] = (build, words, labels)
        return build

    return keep


@masked("must be given masked sums with noise, got masked messages", "List", "Upload/Mask", "Sum", "Unmask/Subtract")
def sum_unmasked_without_noise(scene):
    total = scene.messages() | "Sum" >> beam.CombineGlobally(SumMessagesFn(3)).without_defaults()
    return total | "Unmask" >> scene.unmask()


@masked("must be given public data and releases, got masked messages", "List", "Upload/Mask", "Further")
def messages_with_further_noise_only(scene):
    draw = beam.ParDo(noise._AddFurtherNoiseFn(scene.first.plan, scene.world.secret)).with_input_types(Any)
    return scene.messages() | "Further" >> draw


@masked("must be given masked messages, got exact private data", "List", "Sum", "Noise/Draw")
def masked_noise_on_a_plain_sum(scene):
    return scene.exact() | "Noise" >> AddMaskedNoise(plan=scene.first.plan, key_uri=scene.world.key)


@masked("must run audited code, got test_hostile_pipelines:watched", "List", "Upload/Mask", "Deliver")
def messages_on_their_way_through_a_function_of_somebody(scene):
    rounds = RunMaskedRounds(
        rounds=scene.job.rounds,
        initial=scene.job.initial,
        contract=scene.contract,
        key_uri=scene.world.key,
        masking=scene.masking,
        deliver=watched,
    )
    return scene.shards | "Rounds" >> rounds


@masked("must have the plan of the statistic that it is given", "List", "Upload/Mask", "Aggregate/Noise/Draw")
def masked_release_under_a_wrong_sensitivity(scene):
    return scene.messages() | "Aggregate" >> AggregateMasked(plan=understated(scene.first.plan), key_uri="key")


@masked("must be given public data and releases, got masked sums with noise", "List", "Aggregate", "Server")
def masked_sum_taken_for_a_release(scene):
    found = scene.messages() | "Aggregate" >> AggregateMasked(plan=scene.first.plan, key_uri=scene.world.key)
    return found | "Server" >> beam.Map(publish._model)


def watched(messages: MaskedMessages) -> MaskedMessages:
    return messages


@pytest.mark.parametrize("name", MASKED)
def test_a_leak_around_the_masks_is_refused_with_its_path(world, name):
    build, words, labels = MASKED[name]
    sentence = refused(lambda root: build(MaskedScene(world, root)), world.job(trust="masked").promise)
    assert words in sentence
    assert_path(sentence, labels)


def test_a_release_that_was_left_out_or_added_is_refused(world):
    one, two = world.job(lloyd={"steps": 1}), world.job(lloyd={"steps": 2})
    for ran, planned in ((one, two), (two, one)):
        promise = dataclasses.replace(ran.promise, stages=planned.plan.rounds)
        sentence = refused(functools.partial(world.fit, job=ran), promise)
        assert "the noise stages of the graph must be those of the plan" in sentence


def test_more_than_the_budget_is_refused(world):
    job = world.job()
    tight = dataclasses.replace(job.promise.plans[0], epsilon=job.plan.epsilon * 0.99)
    sentence = refused(lambda root: world.fit(root, job), dataclasses.replace(job.promise, plans=(tight,)))
    assert sentence.startswith("the noise stages of the graph must spend at most epsilon 1.9")


def test_a_plan_that_understates_throughout_is_refused(world):
    """Plan, round and noise stage agree on a sensitivity that the statistic does not have."""
    job = world.job()
    for wrong in range(len(job.rounds)):
        plans = [understated(r.plan, 2) if at == wrong else r.plan for at, r in enumerate(job.rounds)]
        rounds = tuple(each._replace(plan=plan) for each, plan in zip(job.rounds, plans, strict=True))
        promised = dataclasses.replace(job.promise.plans[0], rounds=tuple(plans), epsilon=None)
        sentence = refused(
            lambda root, rounds=rounds: world.fit(root, dataclasses.replace(job, rounds=rounds)),
            dataclasses.replace(job.promise, plans=(promised,)),
        )
        assert "must state the sensitivity of its statistic" in sentence
        assert "lattice units for" in sentence


def test_noise_of_a_matrix_is_refused_for_a_vector(world):
    plan = world.job().plan.round("weights")
    name = "transforms.feddp_kmeans:histogram_statistic"
    assert understatement(name, plan, replaces=False) is None
    release = plan.releases[0]
    spec = dataclasses.replace(release.spec, geometry=Geometry.SYMMETRIC)
    wrong = dataclasses.replace(plan, releases=(dataclasses.replace(release, spec=spec),))
    assert understatement(name, wrong, replaces=False) is not None


def test_an_l1_bound_of_sums_is_larger(world):
    plan = world.job().plan.round("centers")
    name, first = "transforms.feddp_kmeans:means_statistic", plan.releases[0]
    spec = dataclasses.replace(first.spec, mechanism=Mechanism.DISCRETE_LAPLACE)
    wrong = dataclasses.replace(plan, releases=(dataclasses.replace(first, spec=spec), plan.releases[1]))
    assert "which one unit moves by 2097152" in str(understatement(name, wrong, replaces=False))


def test_every_statistic_that_states_a_sensitivity_is_one():
    """By hand: a row of the clipping norm, of its half, and of another sign, as far as they move a vector."""
    assert {bound.bound for parts in STATED.values() for bound in parts.values()} == {2**20, 2**32, 2**26}


def test_rows_alone_do_not_protect_clients(world):
    job = world.job("client")
    alone = dataclasses.replace(job, contract=dataclasses.replace(job.contract, by_client=False))
    sentence = refused(lambda root: world.fit(root, alone), job.promise)
    assert "must read rows by client, got single rows" in sentence
    by_record = dataclasses.replace(job.promise.plans[0], unit=PrivacyUnit.RECORD)
    assert verdict(lambda root: world.fit(root, alone), dataclasses.replace(job.promise, plans=(by_record,))).rounds


def test_cells_of_a_sweep_do_not_swap_their_plans(world):
    jobs = {0: world.job().rounds[0], 1: world.job(privacy__epsilon=1.0).rounds[0]}
    rounds = {n: r._replace(plan=dataclasses.replace(r.plan, path=f"sweep/{n}")) for n, r in jobs.items()}
    plans = {n: r.plan for n, r in rounds.items()}
    promised = dataclasses.replace(world.job().promise.plans[0], rounds=tuple(plans.values()))

    def joined(root, drawn):
        scene = Scene(world, root)
        states = AsDict(root | "States" >> beam.Create([(0, None), (1, None)]))
        statistics = beam.ParDo(_CellStatisticsFn(scene.job.contract, rounds), states)
        sums = scene.shards | "Statistics" >> statistics | "Sum" >> SumKeyedStatistics()
        return sums | "Noise" >> AddKeyedNoise(plans=drawn, key_uri=world.key)

    promise = Promise(zone=Zone.TRUSTED, plans=(promised,))
    assert verdict(lambda root: joined(root, plans), promise).rounds == tuple(plans.values())
    swapped = refused(lambda root: joined(root, {1: plans[0], 0: plans[1]}), promise)
    assert "must have the plan of the statistic that it is given" in swapped


class Profile:
    """A profile whose parts are put together wrongly."""

    def __init__(self, world, folder):
        config = ProfileConfig.model_validate(
            {
                "model": write_model(folder / "fit", lake.MEANS),
                "data": {"path": world.path, "features": "x"},
                "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1e-6},
                "profile": {"numeric": {"age": {"lower": 0, "upper": 100}}, "categorical": {}},
            }
        )
        self.world, self.plan = world, calibrate(config, 3)
        job = world.job()
        self.job = job
        self.params = ProfileParams(model=NearestCenters.of(lake.MEANS), contract=job.contract, plan=self.plan)
        self.promise = Promise(zone=Zone.PUBLIC, declared=(self.plan,))

    def build(self, root, plan):
        measured = self.world.shards(root, self.job) | "Measure" >> MeasureClusters(params=self.params, key_uri="key")
        return measured, measured | "Noise" >> AddPipelineDPNoise(plan=plan)


def test_a_profile_is_noised_by_the_plan_that_measured_it(world, tmp_path):
    profile = Profile(world, tmp_path)
    halved = tuple(dataclasses.replace(each, sensitivity=each.sensitivity / 2) for each in profile.plan.events)
    wrong = dataclasses.replace(profile.plan, events=halved)
    assert verdict(lambda root: profile.build(root, profile.plan), profile.promise).declared == (profile.plan,)
    for promise in (profile.promise, Promise(zone=Zone.PUBLIC, declared=(wrong,))):
        sentence = refused(lambda root: profile.build(root, wrong), promise)
        assert "must be given what was measured by its own plan, got something else" in sentence
        assert_path(sentence, ("List", "Measure", "Noise"))


def test_what_is_inside_of_a_declared_mechanism_stays_private(world, tmp_path):
    profile = Profile(world, tmp_path)

    def build(root):
        _, noised = profile.build(root, profile.plan)
        inner = noised.producer.inputs[0].producer.inputs[0]
        return inner | "Publish" >> PublishModel(folder="out")

    assert_path(refused(build, profile.promise), ("List", "Measure", "Noise", "Publish/Model"))


def test_exact_sums_of_a_profile_go_nowhere_else(world, tmp_path):
    profile = Profile(world, tmp_path)

    def build(root):
        measured, _ = profile.build(root, profile.plan)
        return measured[SUMS] | "Publish" >> PublishModel(folder="out")

    sentence = refused(build, profile.promise)
    assert_path(sentence, ("List", "Measure", "Publish/Model"))


def test_a_declared_mechanism_that_nobody_accounts_for_is_refused(world, tmp_path):
    profile = Profile(world, tmp_path)
    sentence = refused(lambda root: profile.build(root, profile.plan), Promise(zone=Zone.PUBLIC))
    assert "the declared mechanisms of the graph must be those that the job accounts for" in sentence


def test_private_data_of_the_trusted_zone_reach_no_public_sink(world):
    def build(root):
        scene = Scene(world, root)
        models = root | "Models" >> beam.Create([(0, lake.MEANS)])
        costs = scene.shards | "Evaluate" >> EvaluateModels(models=models, contract=scene.job.contract)
        return costs | "Publish" >> PublishModel(folder="out")

    sentence = refused(build, TRUSTED_ZONE)
    assert_path(sentence, ("List", "Evaluate", "Publish/Model"))


def test_pooled_centers_reach_no_private_round(world):
    def build(root):
        scene = Scene(world, root)
        data = {"path": world.path, "features": "x"}
        config = pooled_fit.pooled({"algorithm": "optimal", "data": data, "n_clusters": 3})
        return scene.statistics(state=pooled_fit.centers(scene.shards, config, scene.job.contract))

    assert "must stay out of a job whose outputs are public" in refused(build, world.job().promise)
    job = world.job()
    sentence = refused(build, dataclasses.replace(job.promise, zone=Zone.TRUSTED))
    assert "as a side input" in sentence


def test_a_refused_job_ends_with_4_and_leaves_nothing(world, tmp_path, monkeypatch):
    honest, read = fit.build, []

    def build(root, prepared, key_uri, folder, **options):
        honest(root, prepared, key_uri, folder, **options)
        _ = world.shards(root, prepared, "ListAgain") | "Leak" >> PublishModel(folder=str(tmp_path / "leak"))

    monkeypatch.setattr(fit, "build", build)
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: read.append(self))
    outcome = lake.run_job(lake.job(world.path, world.server), tmp_path)
    assert outcome.code == 4
    assert outcome.lines[-1] == (
        "dapple: Leak/Model must be given public data and releases, got exact private data; let the sum pass the "
        "noise stage first. Path: ListAgain -> Leak/Model."
    )
    assert not read
    assert {each.name for each in tmp_path.iterdir()} == {"job.yaml"}


def test_there_is_no_way_to_run_a_graph_without_a_promise(world):
    with pytest.raises(TypeError, match="promise"):
        graph.run_graph(lambda root: None, None)
