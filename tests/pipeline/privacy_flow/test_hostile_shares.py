"""Leaks around noise that senders split: graphs in which a share is missing, wrong or unsummed are refused."""

import dataclasses
from typing import Any

import apache_beam as beam
import pytest

from dapple_dp.pipelines.kmeans.plan.planned_fit import message_contract
from dapple_dp.pipelines.masked import aggregate
from dapple_dp.schemas.core.plan import Promise, PromisedPlan, Zone
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.files import publish
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.masked import clients, noise_stages, pairwise_legs
from dapple_dp.transforms.masked.aggregator import AggregateMasked, SumMessagesFn
from dapple_dp.transforms.masked.clients import SenderStatistics, UnmaskReleases, WithShares
from dapple_dp.transforms.masked.noise_stages import AddNoiseShares
from dapple_dp.transforms.masked.party_state import RunState
from dapple_dp.transforms.on_beam.noise_stage import AddNoise
from dapple_dp.transforms.privacy.key_files import KeyFile
from tests.scenes.graphs import HostileGraphs, Scene, refused, understated, verdict

LAW = ShareLaw(threshold=10)
SECTION = {"noise_by": "clients", "threshold": 10, "corrupt": 0.0}


class SplitScene(Scene):
    """A masked job whose clients split the noise."""

    def __init__(self, world, root, masked=SECTION):
        super().__init__(world, root, world.job(trust="masked", masked=masked))
        self.masking = dataclasses.replace(world.masking(), shares=LAW, noise_key=world.key)

    def exact_by_sender(self):
        form = SenderStatistics(
            round=self.first, state=self.state, contract=message_contract(self.job), masking=self.masking
        )
        return self.shards | "Form" >> form

    def pinned(self, each=None):
        return self.root | "Pinned" >> pairwise_legs.PinnedStatistics(
            round=each or self.first,
            state=self.state,
            contract=message_contract(self.job),
            masking=self.masking,
            kept=RunState(folder="state"),
        )

    def split(self, named, plan=None, law=LAW, label="Split"):
        plan = plan or self.first.plan
        return named | label >> AddNoiseShares(plan=plan, shares=law, key_source=KeyFile(self.world.key))

    def mask(self, named):
        state = beam.pvalue.AsSingleton(self.state)
        return named | "Mask" >> beam.ParDo(clients._MaskFn(self.masking, self.first.plan), state)

    def aggregate(self, messages, law=LAW):
        shares = AggregateMasked(plan=self.first.plan, key_uri=self.world.key, shares=law)
        return messages | "Aggregate" >> shares

    def unmask(self):
        return UnmaskReleases(plan=self.first.plan, state=self.state, masking=self.masking)


split = HostileGraphs()


@split("must be given the noise shares that the plan says, got others", "List", "Mask")
def messages_without_shares(scene):
    return scene.mask(scene.exact_by_sender())


@split("must be given public data and releases, got exact private data", "Read", "Publish")
def what_is_pinned_is_published(scene):
    return scene.pinned() | "Publish" >> beam.ParDo(publish._WriteModelFn("out"))


@split("must be given the noise shares that the plan says, got others", "Read", "Mask")
def messages_of_what_is_pinned_without_shares(scene):
    return scene.mask(scene.pinned())


@split("must belong to a round of the plan", "Place", "Read")
def what_is_pinned_for_a_round_that_is_not_planned(scene):
    return scene.pinned(scene.first._replace(plan=understated(scene.first.plan)))


@split("must be given masked messages as a side input, got exact private data", "List", "All")
def rows_are_pinned_in_a_public_job(scene):
    kept = RunState(folder="state")
    named = scene.exact_by_sender() | "All" >> beam.combiners.ToList()
    return named | "Pin" >> PrivateSink(write=pairwise_legs.pin, places=("round", kept))


@split("must add one share of the plan's noise", "List", "Split")
def shares_of_a_smaller_noise(scene):
    return scene.split(scene.exact_by_sender(), plan=understated(scene.first.plan))


@split("must add one share of the plan's noise", "List", "Split")
def shares_that_count_on_more_senders(scene):
    return scene.split(scene.exact_by_sender(), law=ShareLaw(threshold=1000))


@split("must add one share of the plan's noise", "List", "Again")
def two_shares_on_one_statistic(scene):
    return scene.split(scene.split(scene.exact_by_sender()), label="Again")


@split("must be given every statistic once, got something else", "List", "Split")
def one_share_for_a_whole_sum(scene):
    return scene.split(scene.exact("Exact"))


@split("must be given public data and releases, got exact private data", "List", "Publish")
def a_statistic_with_its_share_is_published(scene):
    return scene.split(scene.exact_by_sender()) | "Publish" >> beam.ParDo(publish._WriteModelFn("out"))


@split("must be given masked sums with noise, got masked messages", "List", "Unmask")
def messages_with_shares_are_unmasked_one_by_one(scene):
    unmask = beam.ParDo(clients._UnmaskFn(scene.masking, scene.first.plan), beam.pvalue.AsSingleton(scene.state))
    return scene.mask(scene.split(scene.exact_by_sender())) | "Unmask" >> unmask.with_input_types(Any, Any)


@split("must be given masked sums with noise, got masked messages", "List", "Unmask")
def a_sum_whose_shares_nobody_counts(scene):
    total = (
        scene.mask(scene.split(scene.exact_by_sender()))
        | "Sum" >> beam.CombineGlobally(SumMessagesFn(3)).without_defaults()
    )
    return total | "Unmask" >> scene.unmask()


@split("must be given sums whose noise is split as the plan says", "List", "Aggregate")
def shares_counted_by_another_law(scene):
    return scene.aggregate(scene.mask(scene.split(scene.exact_by_sender())), ShareLaw(threshold=2))


@split("must be given sums whose noise is split as the plan says", "List", "Noise")
def a_noise_stage_where_the_plan_says_shares(scene):
    return scene.exact("Exact") | "Noise" >> AddNoise(plan=scene.first.plan, key_source=KeyFile(scene.world.key))


@split("must be given the sum of one statistic, got something else", "List", "Join")
def shares_of_a_batch_that_is_not_summed(scene):
    join = beam.Map(noise_stages._joined, None, scene.first.plan, LAW).with_input_types(Any, Any, Any, Any)
    return scene.mask(scene.split(scene.exact_by_sender())) | "Join" >> join


@pytest.mark.parametrize("name", split.cases)
def test_a_leak_around_the_shares_is_refused(world, name):
    build, words, labels = split.cases[name]
    promise = world.job(trust="masked", masked=SECTION).promise
    sentence = refused(lambda root: build(SplitScene(world, root)), promise)
    assert words in sentence
    assert labels[-1] in sentence


def test_shares_are_refused_where_the_plan_says_a_noise_stage(world):
    def build(root):
        scene = SplitScene(world, root, {})
        return scene.split(scene.exact_by_sender())

    sentence = refused(build, world.job(trust="masked").promise)
    assert "must add one share of the plan's noise" in sentence


@pytest.mark.parametrize("pairwise", [False, True])
def test_an_honest_graph_passes_and_spends_the_plan(world, pairwise):
    section = SECTION | ({"scheme": "pairwise", "corrupt": 0.05, "dropout": 0.1} if pairwise else {})
    job = world.job(trust="masked", masked=section)
    law = job.config.masked.shares
    masking = dataclasses.replace(world.masking(pairwise=pairwise), shares=law, noise_key=world.secret)
    found = verdict(lambda root: world.fit(root, job, masking), job.promise)
    assert found.rounds == job.plan.rounds
    assert found.epsilon == pytest.approx(job.plan.epsilon, rel=1e-12)
    assert found.epsilon <= job.config.privacy.epsilon


@pytest.mark.parametrize(("told", "counted"), [(LAW, LAW), (None, LAW), (LAW, None), (ShareLaw(threshold=2), LAW)])
def test_the_aggregator_counts_shares_if_and_only_if_its_plan_says_so(world, told, counted):
    """Messages of other jobs: the plan of the run alone says whether their sum has its noise."""
    rounds = world.job(trust="masked", masked=SECTION).plan.rounds

    def build(root):
        read = beam.FlatMap(aggregate._read, "exchange", 0, "key", None)
        messages = root | "Files" >> beam.Create([""]) | "Read" >> read
        return messages | "Aggregate" >> AggregateMasked(plan=rounds[0], key_uri="key", shares=counted)

    promise = Promise(zone=Zone.PUBLIC, plans=(PromisedPlan(rounds=rounds, shares=told),), stages=rounds[:1])
    if told == counted:
        assert verdict(build, promise).rounds == rounds[:1]
    else:
        assert "must be given sums whose noise is split as the plan says" in refused(build, promise)


def test_statistics_pass_as_they_are_where_nobody_splits(world):
    named = object()
    masking = world.masking()
    assert WithShares(plan=None, masking=masking).expand(named) is named
