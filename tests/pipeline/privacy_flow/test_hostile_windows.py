"""Leaks around windows under masks: sums that are not combined, or otherwise than planned, and halves in one place."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton

from pipelines.kmeans.plan.planned_fit import message_contract
from schemas.choices import Trust
from schemas.kmeans.fit_config import validated
from schemas.privacy.flow import Promise, PromisedPlan, Zone
from schemas.privacy.window_halves import MaskedSums, MaskTotals
from tests.scenes import lake
from tests.scenes.graphs import HostileGraphs, Scene, refused, verdict
from transforms.kmeans.dp_lloyd import window_rounds, window_server
from transforms.masked import aggregator, clients
from transforms.masked.aggregator import SumMessagesFn
from transforms.masked.clients import UploadMessages
from transforms.masked.rounds import RunMaskedRounds
from transforms.privacy import accounting
from transforms.privacy.noise_stage import AddMaskedNoise
from transforms.privacy_flow.stated_sensitivity import weights_of

EPOCH = {"name": "e", "column": "dt", "first": "2026-01-01", "windows": 4, "band": 3, "once": "made for tests"}
NARROW = (16,)


def epoch_job(world, trust="masked", **epoch):
    recurring = {"previous": "none", "memory": 4, "epoch": EPOCH | {"window": "2026-01-03"} | epoch}
    settings = lake.job(
        world.path, None, algorithm="dp_lloyd", dp_lloyd={"domain": [-8.0, 8.0]}, data__name="d", key_uri=world.key
    )
    del settings["clipping"], settings["feddp_kmeans"]
    masked = {"trust": trust, "masked": {"secret_uri": world.secret}} if trust == "masked" else {}
    return validated(settings | masked | {"ledger": "none.sqlite", "recurring": recurring})


def planned(job):
    specs = window_rounds.round_specs(job, 4)
    return accounting.calibrate(job.privacy.unit, specs, job.privacy.epsilon, job.privacy.delta, job.privacy.allocation)


class WindowScene(Scene):
    """The third window of an epoch under masks, on rows of an ordinary lake."""

    def __init__(self, world, root):
        super().__init__(world, root)
        job = epoch_job(world)
        self.plan = planned(job)
        (self.first,) = window_rounds.rounds(job, self.plan)
        self.initial = window_server.initial_state(job, job.epoch, lake.MEANS, None)
        self.state = root | "Start" >> beam.Create([self.initial], reshuffle=False)
        common = {"epoch": "e", "index": 2, "weights": weights_of(self.first.statistic)}
        self.sums = MaskedSums(folder="sums", key_uri=world.key, **common)
        self.masks = MaskTotals(folder="masks", key_uri=world.secret, **common)
        self.masking = dataclasses.replace(world.masking(), masks=self.masks)

    def total(self, each=None, masking=None):
        upload = UploadMessages(
            round=each or self.first,
            state=self.state,
            contract=message_contract(self.job),
            masking=masking or self.masking,
        )
        size = self.first.plan.size
        return self.shards | "Upload" >> upload | "Sum" >> beam.CombineGlobally(SumMessagesFn(size)).without_defaults()

    def combined(self, total, sums=None, label="Windows"):
        return total | label >> beam.Map(aggregator._with_earlier, sums or self.sums).with_input_types(Any, Any)

    def noised(self, total):
        return total | "Noise" >> AddMaskedNoise(plan=self.first.plan, key_uri=self.world.key)

    def unmasked(self, masked, masking=None):
        unmask = clients._UnmaskFn(masking or self.masking, self.first.plan)
        return masked | "Unmask" >> beam.ParDo(unmask, AsSingleton(self.state))


def promise_of(world):
    plan = planned(epoch_job(world))
    own = PromisedPlan(rounds=plan.rounds, unit=plan.unit, epsilon=plan.epsilon, delta=plan.delta)
    return Promise(zone=Zone.PUBLIC, plans=(own,))


hostile = HostileGraphs()


@hostile("must be given sums of windows that were combined once", "List", "Noise")
def a_sum_that_nobody_combines(scene):
    return scene.noised(scene.total())


@hostile("must be given the sum of one window, got something else", "List", "Again")
def a_sum_that_is_combined_twice(scene):
    return scene.combined(scene.combined(scene.total()), label="Again")


@hostile("must be given the sum of one window, got something else", "List", "Windows")
def messages_that_are_combined_before_they_are_summed(scene):
    upload = UploadMessages(
        round=scene.first, state=scene.state, contract=message_contract(scene.job), masking=scene.masking
    )
    return scene.combined(scene.shards | "Upload" >> upload)


@hostile("must combine by the weights that the statistic states, got others", "List", "Windows")
def weights_that_nobody_paid_for(scene):
    return scene.combined(scene.total(), dataclasses.replace(scene.sums, weights=(16, 16, 16)))


@hostile("must combine by the weights that the statistic states, got others", "List", "Windows")
def a_statistic_that_has_its_weights_already(scene):
    (plain,) = window_rounds.rounds(epoch_job(scene.world, "central"), scene.plan)
    return scene.combined(scene.total(plain))


@hostile("must state the sensitivity of its statistic", "List", "Form")
def a_plan_that_pays_for_one_window(scene):
    narrow = epoch_job(scene.world, band=1)
    (each,) = window_rounds.rounds(epoch_job(scene.world), planned(narrow))
    return scene.total(each)


@hostile("must combine masks as the sums are combined", "List", "Unmask")
def halves_in_one_folder(scene):
    masks = dataclasses.replace(scene.masks, folder=scene.sums.folder)
    masked = scene.noised(scene.combined(scene.total()))
    return scene.unmasked(masked, dataclasses.replace(scene.masking, masks=masks))


@hostile("must combine masks as the sums are combined", "List", "Unmask")
def halves_under_one_key(scene):
    masks = dataclasses.replace(scene.masks, key_uri=scene.sums.key_uri)
    masked = scene.noised(scene.combined(scene.total()))
    return scene.unmasked(masked, dataclasses.replace(scene.masking, masks=masks))


@hostile("must combine masks as the sums are combined", "List", "Unmask")
def masks_of_another_window(scene):
    masks = dataclasses.replace(scene.masks, index=1)
    masked = scene.noised(scene.combined(scene.total()))
    return scene.unmasked(masked, dataclasses.replace(scene.masking, masks=masks))


@hostile("must combine masks as the sums are combined", "List", "Unmask")
def masks_that_nobody_combines(scene):
    masked = scene.noised(scene.combined(scene.total()))
    return scene.unmasked(masked, dataclasses.replace(scene.masking, masks=None))


@hostile("must be handed masked sums of windows only to combine them", "List", "Upload")
def sums_in_the_hands_of_clients(scene):
    return scene.total(masking=dataclasses.replace(scene.masking, masks=scene.sums))


@hostile("must be handed masked sums of windows only to combine them", "List", "Windows")
def both_halves_in_one_step(scene):
    return scene.combined(scene.total(), (scene.sums, scene.masks))


@pytest.mark.parametrize("name", hostile.cases)
def test_a_leak_around_windows_is_refused(world, name):
    build, words, labels = hostile.cases[name]
    promise = promise_of(world)
    if name == "a_plan_that_pays_for_one_window":
        plan = planned(epoch_job(world, band=1))
        promise = Promise(zone=Zone.PUBLIC, plans=(PromisedPlan(rounds=plan.rounds, unit=plan.unit),))
    sentence = refused(lambda root: build(WindowScene(world, root)), promise)
    assert words in sentence
    assert labels[-1] in sentence


def test_an_honest_window_passes_and_spends_the_epoch(world):
    def build(root):
        scene = WindowScene(world, root)
        rounds = RunMaskedRounds(
            rounds=(scene.first,),
            initial=scene.initial,
            contract=message_contract(scene.job),
            key_uri=world.key,
            masking=scene.masking,
            sums=scene.sums,
        )
        return scene.shards | "Rounds" >> rounds

    plan = planned(epoch_job(world))
    found = verdict(build, promise_of(world))
    assert found.rounds == plan.rounds
    assert found.epsilon == pytest.approx(plan.epsilon, rel=1e-12)


def test_the_plan_is_that_of_the_plain_stream(world):
    assert planned(epoch_job(world)) == planned(epoch_job(world, "central"))
    assert epoch_job(world).trust is Trust.MASKED
    assert np.linalg.norm(weights_of(WindowScene(world, beam.Pipeline()).first.statistic)) > NARROW[0]
