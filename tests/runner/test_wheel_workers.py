"""Workers with the built wheel in an environment of their own, given work by Beam's portable runner."""

import pytest

from deploy.local import processes
from deploy.local.worker_environment import start_pool
from tests.scenes.conformance import Conformance

pytestmark = [pytest.mark.runner, pytest.mark.slow]


class TestWheelInAnEnvironmentOfItsOwn(Conformance):
    """Workers have the built wheel and nothing of this repository."""

    @pytest.fixture(scope="class")
    @classmethod
    def flags(cls, environment, logs):
        (port,) = processes.free_ports(1)
        pool = start_pool(environment.python, port, logs / "pool.log")
        yield (
            "--runner=PortableRunner",
            "--job_endpoint=embed",
            "--environment_type=EXTERNAL",
            f"--environment_config=127.0.0.1:{port}",
        )
        pool.stop()

    def test_the_packages_are_those_of_the_wheel(self, environment, tmp_path):
        script = "import dapple_dp.pipelines; print(dapple_dp.pipelines.__file__)"
        done = environment.run(environment.python, "-P", "-c", script, cwd=tmp_path)
        assert done.stdout == f"{environment.packages}/dapple_dp/pipelines/__init__.py\n", done.stderr
