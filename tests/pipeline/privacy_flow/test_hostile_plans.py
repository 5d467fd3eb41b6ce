"""Leaks around masks, plans that promise too little, and private data of the trusted zone: all are refused."""

import dataclasses
import functools
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict

from dapple_dp.pipelines.kmeans.fit_rounds import FitRounds
from dapple_dp.pipelines.kmeans.plan.planned_fit import message_contract
from dapple_dp.pipelines.run import graph
from dapple_dp.pipelines.trusted_zone import pooled_fit
from dapple_dp.schemas.core.plan import TRUSTED_ZONE, Geometry, Mechanism, PrivacyUnit, Promise, Zone
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.transforms.core.stated_sensitivity import understatement
from dapple_dp.transforms.files import publish
from dapple_dp.transforms.files.publish import PublishModel
from dapple_dp.transforms.masked import noise_stages
from dapple_dp.transforms.masked.aggregation import Masked
from dapple_dp.transforms.masked.aggregator import AggregateMasked, SumMessagesFn
from dapple_dp.transforms.masked.clients import UnmaskReleases, UploadMessages
from dapple_dp.transforms.masked.noise_stages import AddMaskedNoise
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.on_beam.noise_stage import AddKeyedNoise
from dapple_dp.transforms.on_beam.round import RunRounds
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.profile.accounting import calibrate
from dapple_dp.transforms.profile.measure_clusters import SUMS, MeasureClusters
from dapple_dp.transforms.profile.pipeline_dp_noise import AddPipelineDPNoise
from dapple_dp.transforms.profile.rows import ProfileParams
from dapple_dp.transforms.trusted_zone.evaluate_models import EvaluateModels, ScoreModels, ScoreParams
from dapple_dp.transforms.trusted_zone.sweep_cells import SumKeyedStatistics, _CellStatisticsFn
from tests.scenes import lake
from tests.scenes.graphs import HostileGraphs, Scene, assert_path, refused, understated, verdict
from tests.scenes.models import write_model


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


masked = HostileGraphs()


@masked("must be given masked sums with noise, got masked messages", "List", "Upload/Mask", "Sum", "Unmask/Subtract")
def sum_unmasked_without_noise(scene):
    total = scene.messages() | "Sum" >> beam.CombineGlobally(SumMessagesFn(3)).without_defaults()
    return total | "Unmask" >> scene.unmask()


@masked("must be given public data and releases, got masked messages", "List", "Upload/Mask", "Further")
def messages_with_further_noise_only(scene):
    draw = beam.ParDo(noise_stages._AddFurtherNoiseFn(scene.first.plan, KeyFile(scene.world.secret))).with_input_types(
        Any
    )
    return scene.messages() | "Further" >> draw


@masked("must be given masked messages, got exact private data", "List", "Sum", "Noise/Draw")
def masked_noise_on_a_plain_sum(scene):
    return scene.exact() | "Noise" >> AddMaskedNoise(plan=scene.first.plan, key_source=KeyFile(scene.world.key))


@masked("must run audited code, got test_hostile_plans:watched", "List", "Upload/Mask", "Deliver")
def messages_on_their_way_through_a_function_of_somebody(scene):
    key = scene.world.key
    aggregation = Masked(contract=scene.contract, key_uri=key, masking=scene.masking, deliver=watched)
    rounds = RunRounds(rounds=scene.job.rounds, state=scene.state, aggregation=aggregation)
    return scene.shards | "Rounds" >> rounds


@masked("must have the plan of the statistic that it is given", "List", "Upload/Mask", "Aggregate/Noise/Draw")
def masked_release_under_a_wrong_sensitivity(scene):
    return scene.messages() | "Aggregate" >> AggregateMasked(plan=understated(scene.first.plan), key_uri="key")


@masked("must be given public data and releases, got masked sums with noise", "List", "Aggregate", "Server")
def masked_sum_taken_for_a_release(scene):
    found = scene.messages() | "Aggregate" >> AggregateMasked(plan=scene.first.plan, key_uri=scene.world.key)
    return found | "Server" >> beam.ParDo(publish._WriteModelFn("out"))


def watched(messages: MaskedMessages) -> MaskedMessages:
    return messages


@pytest.mark.parametrize("name", masked.cases)
def test_a_leak_around_the_masks_is_refused_with_its_path(world, name):
    build, words, labels = masked.cases[name]
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
    name = "dapple_dp.transforms.kmeans.feddp_kmeans.rounds:histogram_statistic"
    assert understatement(name, plan, replaces=False) is None
    release = plan.releases[0]
    spec = dataclasses.replace(release.spec, geometry=Geometry.SYMMETRIC)
    wrong = dataclasses.replace(plan, releases=(dataclasses.replace(release, spec=spec),))
    assert understatement(name, wrong, replaces=False) is not None


def test_sums_of_rows_have_no_laplace_noise_where_clients_are_clipped_in_l2(world):
    plan = world.job().plan.round("centers")
    name, first = "dapple_dp.transforms.kmeans.lloyd.rounds:means_statistic", plan.releases[0]
    spec = dataclasses.replace(first.spec, mechanism=Mechanism.DISCRETE_LAPLACE)
    wrong = dataclasses.replace(plan, releases=(dataclasses.replace(first, spec=spec), plan.releases[1]))
    assert "which one unit moves by inf" in str(understatement(name, wrong, replaces=False))
    assert "which one unit moves by inf" in str(understatement(name, wrong, replaces=False, l1=True))


def test_rows_alone_do_not_protect_clients(world):
    job = world.job("client")
    alone = dataclasses.replace(job, contract=dataclasses.replace(job.contract, by_client=False))
    sentence = refused(lambda root: world.fit(root, alone), job.promise)
    assert "must read rows by client, got single rows" in sentence
    by_record = dataclasses.replace(job.promise.plans[0], unit=PrivacyUnit.RECORD)
    sentence = refused(lambda root: world.fit(root, alone), dataclasses.replace(job.promise, plans=(by_record,)))
    assert "must start from a state whose privacy unit is record, got a state of the other unit" in sentence


def test_cells_of_a_sweep_do_not_swap_their_plans(world):
    jobs = {0: world.job().rounds[0], 1: world.job(privacy__epsilon=1.0).rounds[0]}
    rounds = {n: r._replace(plan=dataclasses.replace(r.plan, path=f"sweep/{n}")) for n, r in jobs.items()}
    plans = {n: r.plan for n, r in rounds.items()}
    promised = dataclasses.replace(world.job().promise.plans[0], rounds=tuple(plans.values()))

    def joined(root, drawn):
        scene = Scene(world, root)
        states = AsDict(root | "States" >> beam.Create([(0, scene.job.initial), (1, scene.job.initial)]))
        statistics = beam.ParDo(_CellStatisticsFn(scene.job.contract, rounds, "round 1"), states)
        sums = scene.shards | "Statistics" >> statistics | "Sum" >> SumKeyedStatistics()
        return sums | "Noise" >> AddKeyedNoise(plan=drawn, key_source=KeyFile(world.key))

    promise = Promise(zone=Zone.TRUSTED, plans=(promised,))
    assert verdict(lambda root: joined(root, plans), promise).rounds == tuple(plans.values())
    swapped = refused(lambda root: joined(root, {1: plans[0], 0: plans[1]}), promise)
    assert "must have the plan of the statistic that it is given" in swapped


class Profile:
    """A profile whose parts are put together wrongly."""

    def __init__(self, world, folder, unit="record"):
        rows = {"max_rows_per_client": 7} if unit == "client" else {}
        config = ProfileConfig.model_validate(
            {
                "model": write_model(folder / "fit", lake.MEANS),
                "data": {"path": world.path, "features": "x", "client_id": "client_id"},
                "privacy": {"unit": unit, "epsilon": 2.0, "delta": 1e-6},
                "profile": {
                    "numeric": {"age": {"lower": 0, "upper": 100, "percentiles": [50]}},
                    "categorical": {"job": {"values": None}, "own": {"values": [False, True]}},
                }
                | rows,
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


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_profile_whose_plan_understates_throughout_is_refused(world, tmp_path, unit):
    profile = Profile(world, tmp_path, unit)
    for index, event in enumerate(profile.plan.events):
        events = list(profile.plan.events)
        events[index] = dataclasses.replace(event, sensitivity=event.sensitivity * 0.999)
        wrong = dataclasses.replace(profile.plan, events=tuple(events))
        profile.params = dataclasses.replace(profile.params, plan=wrong)
        sentence = refused(
            lambda root, wrong=wrong: profile.build(root, wrong), Promise(zone=Zone.PUBLIC, declared=(wrong,))
        )
        assert f"must declare the sensitivity of what it noises, got {wrong.events[index].sensitivity:g}" in sentence
        assert event.path in sentence


def test_the_inside_of_a_declared_mechanism_stays_private(world, tmp_path):
    profile = Profile(world, tmp_path)

    def build(root):
        _, noised = profile.build(root, profile.plan)
        inner = noised.producer.inputs[0]
        return inner | "Publish" >> PublishModel(folder="out")

    assert_path(refused(build, profile.promise), ("List", "Measure", "Noise", "Publish/Write"))


def test_exact_sums_of_a_profile_go_nowhere_else(world, tmp_path):
    profile = Profile(world, tmp_path)

    def build(root):
        measured, _ = profile.build(root, profile.plan)
        return measured[SUMS] | "Publish" >> PublishModel(folder="out")

    sentence = refused(build, profile.promise)
    assert_path(sentence, ("List", "Measure", "Publish/Write"))


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
    assert_path(sentence, ("List", "Evaluate", "Publish/Write"))


def test_scores_of_cells_reach_no_public_sink(world):
    def build(root):
        scene = Scene(world, root)
        models = root | "Models" >> beam.Create([(0, lake.MEANS)])
        params = ScoreParams(contract=scene.job.contract)
        return (
            scene.shards
            | "Score" >> ScoreModels(models=models, params=params)
            | "Publish" >> PublishModel(folder="out")
        )

    sentence = refused(build, TRUSTED_ZONE)
    assert_path(sentence, ("List", "Score", "Publish/Write"))


def test_pooled_centers_reach_no_private_round(world):
    def build(root):
        scene = Scene(world, root)
        data = {"path": world.path, "features": "x"}
        config = pooled_fit.validated_pooled({"algorithm": "optimal", "data": data, "n_clusters": 3})
        return scene.statistics(state=pooled_fit.centers(scene.shards, config, scene.job.contract))

    assert "must stay out of a job whose outputs are public" in refused(build, world.job().promise)
    job = world.job()
    sentence = refused(build, dataclasses.replace(job.promise, zone=Zone.TRUSTED))
    assert "as a side input" in sentence


def test_a_refused_job_ends_with_4_and_leaves_nothing(world, tmp_path, monkeypatch):
    honest, read = FitRounds.add_rounds, []

    def add_rounds(self, root, *words):
        found = honest(self, root, *words)
        _ = world.shards(root, self._planned, "ListAgain") | "Leak" >> PublishModel(folder=str(tmp_path / "leak"))
        return found

    monkeypatch.setattr(FitRounds, "add_rounds", add_rounds)
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: read.append(self))
    outcome = lake.run_job(lake.job(world.path, world.server), tmp_path)
    assert outcome.code == 4
    assert outcome.lines[-1] == (
        "dapple: Leak/Write must be given public data and releases, got exact private data; let the sum pass the "
        "noise stage first. Path: ListAgain -> Leak/Write."
    )
    assert not read
    assert {each.name for each in tmp_path.iterdir()} == {"job.yaml"}


def test_there_is_no_way_to_run_a_graph_without_a_promise(world):
    with pytest.raises(TypeError, match="promise"):
        graph.run_graph(lambda root: None, None)
