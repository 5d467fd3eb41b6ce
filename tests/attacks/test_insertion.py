"""Insertion: 50 copies of the vector of a known text give it a cluster of its own, whose terms are then read off.

Source: after Cliopatra (arXiv 2603.09781), whose target is a pipeline without noise.
"""

import pytest

from benchmarks import topics

TRIALS = 40
TERMS = tuple(f"diagnosis {index}" for index in range(len(topics.ODDS)))


SCENES = [topics.Scene.of(trial) for trial in range(TRIALS)]


def guessed(epsilon, variance=1.0):
    """Returns how many targets are guessed right; the draws are always the same ones."""
    config = topics.job(6, epsilon, "record", TERMS, steps=8)
    return sum(topics.guessed(config, scene, variance) == scene.truth for scene in SCENES)


def test_rules_of_thumb_give_nearly_every_text_away():
    assert sum(topics.guessed_of_replica(scene) == scene.truth for scene in SCENES) >= 0.9 * TRIALS


def test_without_noise_the_attack_reads_nearly_every_text():
    assert guessed(1.0, topics.SILENT) >= 0.9 * TRIALS


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_with_noise_it_guesses_no_better_than_epsilon_lets_it(epsilon):
    assert guessed(epsilon) <= topics.most_guessed(epsilon) * TRIALS
