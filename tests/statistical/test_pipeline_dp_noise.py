"""PipelineDP draws the noise that the plan accounts for, and its trees and thresholds no less."""

import math

import apache_beam as beam
import numpy as np
import pipeline_dp
import pytest
from pipeline_dp import combiners, partition_selection
from scipy import stats

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.transforms.profile.accounting import calibrate, mechanism_spec
from dapple_dp.transforms.profile.measure_clusters import SUMS
from dapple_dp.transforms.profile.pipeline_dp_noise import AddPipelineDPNoise, Noised

N_CLUSTERS, N_VALUES = 5, 2000


def plan_of(epsilon=1.0, unit="record", **profile):
    found = {
        "model": "fit",
        "data": {"path": "lake", "features": "x", "client_id": "owner"},
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": 1e-6},
        "profile": profile | ({"max_rows_per_client": 3} if unit == "client" else {}),
    }
    return calibrate(ProfileConfig.model_validate(found), N_CLUSTERS)


def save(noised: Noised, path):
    np.save(f"{path}-{noised.path.count('histograms')}", np.array(noised.values))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_counts_get_the_noise_of_the_plan(unit, tmp_path):
    plan = plan_of(unit=unit, categorical={"job": {"values": list(range(N_VALUES))}})
    with beam.Pipeline(options=beam_options([])) as root:
        exact = root | beam.Create([np.zeros(plan.size, dtype=np.int64)], reshuffle=False)
        noised = {SUMS: exact} | AddPipelineDPNoise(plan=plan)
        _ = noised | beam.Filter(is_histogram) | beam.Map(save, str(tmp_path / "noise"))
    noise = np.load(tmp_path / "noise-1.npy")
    # The stddev of 10,000 draws is off by 0.7% at random: by 4.6% once in 10**10 runs, and 10% are detected.
    assert noise.std() == pytest.approx(plan.event("profile/histograms/job").noise_stddev, rel=0.046)
    assert stats.kstest(noise / noise.std(), "norm").pvalue > 1e-10
    assert len(np.unique(noise)) == len(noise)


def is_histogram(noised: Noised):
    return "histograms" in noised.path


@pytest.mark.parametrize(("epsilon", "kind"), [(4.0, "GAUSSIAN"), (0.05, "LAPLACE")])
def test_trees_get_at_least_the_noise_of_the_plan(epsilon, kind):
    """Two values a full range apart: the median is one or the other, by which of the two noisy counts is larger."""
    plan = plan_of(epsilon, numeric={"age": {"lower": 0, "upper": 1, "percentiles": [50]}})
    event = plan.event("profile/percentiles/age")
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.PERCENTILE(50)],
        noise_kind=pipeline_dp.NoiseKind[kind],
        min_value=0,
        max_value=1,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    combiner = combiners.QuantileCombiner(combiners.CombinerParams(mechanism_spec(event), params), [50])
    n_rows, ahead = round(300 * event.noise_stddev), round(event.noise_stddev)
    tree = combiner.create_accumulator([0.01] * (n_rows + ahead) + [0.99] * n_rows)
    flips = np.mean([combiner.compute_metrics(tree)["percentile_50"] > 0.5 for _ in range(1500)])
    # A lead of one stddev is lost with probability 0.24 (Gaussian) or 0.21 (Laplace), with half the noise 0.08 or
    # 0.06; counts that stay empty add noise of their own. The share of 1,500 has stddev 0.011: six and a half
    # are left below, which are passed once in 10**10 runs.
    expected = stats.norm.sf(1 / math.sqrt(2)) if kind == "GAUSSIAN" else 0.208
    assert flips > expected - 0.072


@pytest.mark.parametrize("max_partitions", [1, 3])
def test_thresholds_are_those_of_the_plan(max_partitions):
    event = plan_of(categorical={"job": {}}).event("profile/selections/job")
    sigma, delta = event.noise_multiplier, event.threshold_delta
    selector = partition_selection.create_gaussian_thresholding(sigma, delta, max_partitions)
    stddev = sigma * math.sqrt(max_partitions)
    threshold = 1.0 + stddev * stats.norm.isf(delta / max_partitions)
    assert selector.threshold == pytest.approx(threshold, rel=1e-3)
    # One stddev above the threshold a value passes with probability 0.84; the share of 4,000 has stddev 0.006.
    passed = np.mean([selector.should_keep(round(selector.threshold + stddev)) for _ in range(4000)])
    assert passed == pytest.approx(
        stats.norm.sf((selector.threshold - round(selector.threshold + stddev)) / stddev), abs=0.04
    )
    # A single unit passes with probability delta = 2.5e-7 at most: three of 4,000 do once in 10**10 runs.
    assert sum(selector.should_keep(1) for _ in range(4000)) < 3
