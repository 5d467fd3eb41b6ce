"""Prism, Beam's portable runner in Go."""

import pytest

from examples.runners import downloads
from tests.conformance import Conformance, needed

pytestmark = [pytest.mark.runner, pytest.mark.prism]


class TestPrism(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls):
        with needed():
            binary = downloads.prism_binary()
        return ("--runner=PrismRunner", f"--prism_location={binary}")
