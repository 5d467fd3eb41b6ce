"""Processes that add up, whose work is a function of the test's own module."""

import pytest

from transforms.rounds.sum_processes import SumProcess


@pytest.fixture
def process(request):
    """Makes one by the name of its function; all end with the test."""
    made = []

    def make(name):
        made.append(SumProcess(f"{request.module.__name__}:{name}"))
        return made[-1]

    yield make
    for each in made:
        each.end()
