"""The lake of the conformance tests, and a place for logs."""

import pathlib

import pytest

from tests.scenes.conformance import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns where background processes write; apart from what a job writes."""
    return tmp_path_factory.mktemp("logs")
