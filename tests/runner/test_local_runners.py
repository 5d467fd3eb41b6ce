"""The runners that come with Beam for Python: in memory and in processes."""

import pytest

from tests.scenes.conformance import Conformance

pytestmark = pytest.mark.runner


class TestInMemory(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls):
        return ("--runner=FnApiRunner", "--direct_runner_bundle_repeat=2")


@pytest.mark.slow
class TestProcesses(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls):
        return ("--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
