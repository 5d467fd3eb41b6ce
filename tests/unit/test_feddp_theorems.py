"""Experiments of FedDP-KMeans in memory: Algorithms 3 and 5, the same numbers as `fit`, scores, fronts."""

import collections

import numpy as np
import pytest
from sklearn import metrics

from benchmarks import mixture
from benchmarks.papers import algorithm_5, feddp_scores, feddp_shares, feddp_theorems, in_memory

PARTS = {"diameter": "diameter", "outer_product": "projection", "weights": "start", "centers": "means"}


def part_of(path):
    name = path.rpartition("/")[2]
    return PARTS.get(name, "start" if name.startswith("simplify") else "means")


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_every_part_of_algorithm_5_has_a_quarter_of_epsilon(steps):
    sections, parts = feddp_theorems.fifth(steps, 25, 0.2, 1.0, 1.0)
    config = in_memory.job("feddp_kmeans", "record", 1.0, 5, 0, **sections)
    spent, rounds = collections.defaultdict(float), collections.defaultdict(set)
    for each in algorithm_5.round_specs(config, 20, 25, parts=parts):
        share = sum(release.share for release in each.releases)
        spent[part_of(each.path)] += share
        rounds[part_of(each.path)].add(round(share, 9))
    assert dict(spent) == pytest.approx(dict.fromkeys(("diameter", "projection", "start", "means"), 0.25))
    assert all(len(shares) == 1 for shares in rounds.values())


def test_algorithm_3_finds_the_means_of_a_separated_mixture():
    drawn = feddp_theorems.draw(2_000, 2_000, 0)
    found = feddp_theorems.judged(drawn, feddp_theorems.algorithm_3(drawn.rows, 5, 0))
    assert found.wrong == 0.0
    assert found.excess == pytest.approx(0.0, abs=1e-12)
    assert found.distance < 0.5


def test_a_separated_mixture_is_as_far_apart_as_definition_1_asks():
    means = feddp_theorems.draw(100, 5_000, 3).means
    apart = np.linalg.norm(means[:, None] - means[None], axis=2)[np.triu_indices(5, 1)]
    np.testing.assert_allclose(apart, feddp_theorems.separation(5_000))


def test_judged_centers_in_any_order_and_wrong_rows():
    drawn = feddp_theorems.draw(500, 500, 1)
    moved = drawn.means[::-1].copy()
    assert feddp_theorems.judged(drawn, moved).wrong == 0.0
    moved[0] = moved[1] + 0.1
    assert feddp_theorems.judged(drawn, moved).wrong > 0.05


@pytest.mark.parametrize("client_rows", [None, 50])
def test_rounds_in_memory_find_the_clusters(client_rows):
    drawn = mixture.draw(0, 20_000, 10, 4)
    unit = "record" if client_rows is None else "client"
    config = in_memory.job("feddp_kmeans", unit, 8.0, 4, 0)
    block = in_memory.client_block(drawn.rows, client_rows)
    centers = in_memory.centers(config, drawn.server, block, 0)
    again = in_memory.centers(config, drawn.server, block, 0)
    other = in_memory.centers(config, drawn.server, block, 1)
    np.testing.assert_array_equal(centers, again)
    assert (centers != other).any()
    assert np.linalg.norm(drawn.means[:, None] - centers[None], axis=2).min(axis=1).max() < 1.0


def test_scores_are_those_of_scikit_learn():
    drawn = feddp_scores.draw(600)
    centers = drawn.best + 0.2
    found = feddp_scores.scored(drawn, centers)
    labels = ((drawn.rows[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert found.fowlkes_mallows == pytest.approx(metrics.fowlkes_mallows_score(drawn.labels, labels))
    assert found.adjusted_rand == pytest.approx(metrics.adjusted_rand_score(drawn.labels, labels))
    assert found.silhouette == pytest.approx(metrics.silhouette_score(drawn.rows, labels))
    assert found.calinski_harabasz == pytest.approx(metrics.calinski_harabasz_score(drawn.rows, labels))


def test_labels_of_the_mixture_are_its_components():
    drawn = feddp_scores.draw(2_000)
    means = mixture.draw(0, 2_000).means
    nearest = ((drawn.rows[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == drawn.labels).mean() > 0.95


def test_shares_add_up_and_the_recommendation_is_among_them():
    for unit, recommended in feddp_shares.RECOMMENDED.items():
        found = feddp_shares.settings(unit)
        assert found[0] == recommended
        assert len(found) == feddp_shares.N_SHARES
        np.testing.assert_allclose(np.sum(found, axis=1), 1.0, atol=2e-3)
        assert np.min(found) >= feddp_shares.LEAST_SHARE


def test_the_front_and_what_is_near_it():
    run = feddp_shares.Run
    shares = (0.25,) * 4
    some = [run(0.2, shares, 0, 10.0), run(0.2, shares, 1, 10.05), run(0.5, shares, 2, 10.2), run(1.0, shares, 0, 9.0)]
    assert feddp_shares.front(some) == [some[0], some[3]]
    assert feddp_shares.near(some) == some
    assert feddp_shares.summary(some)[4:] == [0.5, 0.25, 0.25]
