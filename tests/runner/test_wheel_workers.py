"""Workers with the built wheel in an environment of their own, given work by Beam's portable runner."""

import subprocess

import pytest

from deploy.local import processes
from deploy.local.worker_environment import start_pool, worker_python
from tests.scenes.conformance import Conformance, needed

pytestmark = [pytest.mark.runner, pytest.mark.slow]


class TestWheelInAnEnvironmentOfItsOwn(Conformance):
    """Workers have the built wheel and nothing of this repository."""

    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls, logs):
        with needed("workers"):
            python = str(worker_python())
        (port,) = processes.free_ports(1)
        pool = start_pool(python, port, logs / "pool.log")
        yield (
            "--runner=PortableRunner",
            "--job_endpoint=embed",
            "--environment_type=EXTERNAL",
            f"--environment_config=127.0.0.1:{port}",
        )
        pool.stop()

    def test_the_packages_are_those_of_the_wheel(self):
        with needed("workers"):
            python = worker_python()
        words = [python, "-P", "-c", "import dapple_dp.pipelines; print(dapple_dp.pipelines.__file__)"]
        done = subprocess.run(words, capture_output=True, text=True, check=True, env={}, cwd=python.parent)
        assert "site-packages" in done.stdout
