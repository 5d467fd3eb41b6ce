"""`python -m tests.own_environments [NAME ...]`: tests with packages that Dapple does not depend on, or does not pin.

Each set of packages gets an environment in `out/ways/NAME`, which git ignores. There, tests run that are skipped
elsewhere. Most find Dapple's own requirements where this Python has them; those that stand alone do not see them.
"""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = ROOT / "out" / "ways"
LOWEST_BEAM = re.findall(r'BEAM = ">=([\d.]+),', (ROOT / "setup.py").read_text())[0]
REQUIRED = tuple(each for each in importlib.metadata.requires("dapple-dp") or () if "extra ==" not in each)


class Way(NamedTuple):
    """Packages, and the tests that need them.

    Attributes:
      packages: for pip.
      tests: files and folders, with spaces between them.
      alone: whether the packages disagree with Dapple's requirements, and the tests need nothing but pytest.
      flags: for pip.
    """

    packages: tuple[str, ...]
    tests: str
    alone: bool = False
    flags: tuple[str, ...] = ()


WAYS = {
    "beam_yaml": Way(
        (
            "docstring-parser==0.18.0",
            "jsonschema==4.26.0",
            "jsonschema-specifications==2025.9.1",
            "referencing==0.37.0",
            "rpds-py==2026.9.1",
            "attrs==26.1.0",
            "virtualenv-clone==0.5.7",
            "pandas==2.3.3",
            "pytz==2026.6",
            "python-dateutil==2.9.0.post0",
            "six==1.17.0",
            "quickjs-ng==0.17.0.2",
            "tzdata==2026.6",
        ),
        "tests/pipeline/command/test_beam_yaml.py",
        flags=("--no-deps",),
    ),
    "frames": Way(
        (
            "pandas==2.3.3",
            "polars==1.36.1",
            "polars-runtime-32==1.36.1",
            "pytz==2026.6",
            "python-dateutil==2.9.0.post0",
            "six==1.17.0",
            "tzdata==2026.6",
        ),
        "tests/pipeline/kmeans/test_frames.py",
        flags=("--no-deps",),
    ),
    "lowest_beam": Way(
        (f"apache-beam=={LOWEST_BEAM}", *REQUIRED),
        "tests/unit/run tests/pipeline/kmeans/test_tree_fit.py tests/pipeline/privacy_flow/test_privacy_flow.py",
    ),
    "openlineage": Way(("openlineage-python>=1.40,<2",), "tests/unit/ledger/test_lineage.py"),
    "airflow": Way(
        (
            "apache-airflow==3.3.2",
            "apache-airflow-providers-standard==1.21.0",
            # All pinned: pip looks for a long time for versions that agree.
            "apache-airflow-providers-amazon==9.39.0",
            "s3fs==2026.9.0",
            "fsspec==2026.9.0",
            "aiobotocore==3.10.0",
            "boto3==1.43.117",
            "pytest",
        ),
        "tests/pipeline/command/test_airflow.py",
        alone=True,
    ),
    "sbom": Way(
        ("cyclonedx-bom==7.5.0", "cyclonedx-python-lib[json-validation]==11.12.0", "pytest"),
        "tests/unit/command/test_sbom.py",
        alone=True,
    ),
    "containers": Way(
        ("kubernetes-validate==1.37.0", "dockerfile-parse==2.0.1", "pytest"),
        "tests/unit/command/test_container_schemas.py",
        alone=True,
    ),
}


def environment(name: str, way: Way) -> pathlib.Path:
    """The interpreter of a way's environment, made if it is not there; raises CalledProcessError if pip cannot."""
    folder = CACHE / name
    python, done = folder / "bin" / "python", folder / "packages.txt"
    wanted = "\n".join(way.packages)
    if not done.exists() or done.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *way.flags, *way.packages], check=True)
        if not way.alone:
            (own,) = (folder / "lib").glob("python*/site-packages")
            (own / "dapple_requirements.pth").write_text(sysconfig.get_path("purelib"))
        done.write_text(wanted)
    return python


def run(name: str) -> int:
    """Runs the tests of a way; pytest's exit code, or 3 if its packages cannot be had."""
    way = WAYS[name]
    try:
        python = environment(name, way)
    except subprocess.CalledProcessError:
        sys.stderr.write(f"own_environments: pip cannot install the packages of {name}\n")
        return 3
    flags = ["-q", "-rs", *(["--noconftest", "-c", os.devnull, "--rootdir", str(ROOT)] if way.alone else [])]
    words = [python, "-m", "pytest", *flags, *(str(ROOT / each) for each in way.tests.split())]
    own = python if not way.alone else sys.executable
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {"DAPPLE": f"{own} -m dapple_dp", "PYTHONPATH": path}
    return subprocess.run(words, cwd=ROOT, env=os.environ | variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(max(run(name) for name in sys.argv[1:] or WAYS))
