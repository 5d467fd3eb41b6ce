"""Insertion: 50 copies of the vector of a known text give it a cluster of its own, whose terms are then read off.

Source: after Cliopatra (arXiv 2603.09781), whose target is a pipeline without noise.
"""

import math

import pytest

from benchmarks import topics

TRIALS = 40
TERMS = tuple(f"diagnosis {index}" for index in range(len(topics.ODDS)))


def guessed(epsilon, variance=1.0):
    """How many targets are guessed right; the draws are always the same ones."""
    config = topics.job(6, epsilon, "record", TERMS, steps=8)
    return sum(topics.attacked(config, trial, 32, variance) for trial in range(TRIALS))


def test_without_noise_the_attack_reads_nearly_every_text():
    assert guessed(1.0, topics.SILENT) >= 0.9 * TRIALS


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_with_noise_it_guesses_no_better_than_epsilon_lets_it(epsilon):
    odds = topics.ODDS[0]
    bound = math.exp(epsilon) * odds / (1.0 - odds + math.exp(epsilon) * odds)
    assert guessed(epsilon) <= bound * TRIALS
