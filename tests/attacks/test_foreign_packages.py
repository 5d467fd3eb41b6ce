"""Other people's `pipelines`, `transforms` and `schemas`: Dapple runs its own, or says in one sentence why not.

The first four tests are what a user met: (a) a project with such a folder, (b) one on PYTHONPATH, (c) one before the
page's templates, (d) a distribution that installs one over ours.
"""

import ast
import json
import pathlib
import re
import subprocess
import sys

import pytest

from dapple_dp import own_packages
from deploy.cut import current
from tests.scenes import installed, lake

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACME = {
    "pipelines/__init__.py": '"""The pipelines of Acme."""\nOURS = True\n',
    "pipelines/nightly.py": "def main():\n    return 'acme'\n",
    "schemas/__init__.py": '"""The tables of Acme."""\n',
}
SENTENCE = re.compile(
    r"the package (pipelines|transforms|schemas) must be Dapple's own, got another one or none in \S+"
    r"( \(of acme-etl\))?; install dapple-dp again, in an environment of its own\.\n"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return installed.dapple_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheel):
    found = installed.new_environment(tmp_path_factory.mktemp("user") / "venv")
    found.install(wheel)
    return found


@pytest.fixture
def project(tmp_path):
    """A folder with packages of Acme."""
    for path, text in ACME.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def refused(done, code=2):
    assert (done.returncode, done.stdout) == (code, "")
    assert SENTENCE.fullmatch(done.stderr.removeprefix("dapple: ")), done.stderr


@pytest.mark.slow
def test_a_project_with_its_own_pipelines_imports_the_estimator(environment, project):
    """(a) The folder of a script comes first on its path."""
    (project / "run.py").write_text("from dapple_dp import DPKMeans, fit\nprint(DPKMeans.__module__, fit.__module__)\n")
    done = environment.run(environment.python, "run.py", cwd=project)
    assert done.stdout == "dapple_dp.estimator.dp_kmeans dapple_dp.api\n", done.stderr


@pytest.mark.slow
def test_the_command_runs_whatever_pythonpath_says(environment, project):
    """(b) and (c): a whole run with a report, where all three names are taken on the path."""
    (project / "transforms.py").write_text("raise SystemExit('the transforms of Acme')\n")
    path = lake.write_lake(project / "lake", lake.mixture(300))
    changes = {"clipping__norm": 10.0, "clipping__center": "none", "lloyd__steps": 1}
    job = lake.job(path, None, algorithm="sphere_packing", **changes)
    (project / "job.yaml").write_text(json.dumps(job))
    words = ("fit", "--config", "job.yaml", "--output", "out")
    for start in ([environment.dapple], [environment.python, "-P", "-m", "dapple_dp"]):
        done = environment.run(*start, *words, cwd=project, PYTHONPATH=".")
        assert done.returncode == 0, done.stderr
        assert (project / "out" / "report.html").stat().st_size > 10_000
        (project / "out").rename(project / f"out-{len(start)}")


def test_run_local_starts_the_public_package():
    """(c) The script runs the packages of its own folder in the same way."""
    text = (ROOT / "run_local.sh").read_text()
    assert 'PYTHONSAFEPATH=1 exec "$python" -m dapple_dp "$@"' in text
    assert "-m pipelines" not in text


@pytest.mark.slow
def test_a_distribution_that_installs_its_own_is_named(tmp_path, wheel):
    """(d) Installed over Dapple, and taken away again: refused both times, and healed by installing Dapple again."""
    user = installed.new_environment(tmp_path / "venv")
    user.install(wheel)
    user.install(installed.foreign_wheel(tmp_path, ACME))
    done = user.run(user.dapple, "--version", cwd=tmp_path)
    refused(done)
    assert "(of acme-etl)" in done.stderr
    imported = user.run(user.python, "-c", "from dapple_dp import DPKMeans", cwd=tmp_path)
    assert imported.returncode == 1
    assert SENTENCE.search(imported.stderr)
    user.uninstall("acme-etl")
    refused(user.run(user.dapple, "--version", cwd=tmp_path))
    user.install(wheel)
    assert user.run(user.dapple, "--version", cwd=tmp_path).stdout == f"dapple {current()}\n"


@pytest.mark.parametrize("name", own_packages.BEGINNINGS)
def test_a_package_that_was_imported_before_is_refused(environment, tmp_path, name):
    """Dapple's modules would be looked for in it."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    script = f"import {name}\nfrom dapple_dp import ConfigError\n"
    (tmp_path / "run.py").write_text(script)
    done = environment.run(environment.python, "run.py", cwd=tmp_path)
    assert done.returncode == 1
    assert SENTENCE.search(done.stderr)
    assert str(tmp_path) in done.stderr


def test_a_plain_module_of_the_name_that_was_imported_before_is_refused(environment, tmp_path):
    (tmp_path / "schemas.py").write_text("")
    script = "import schemas\nfrom dapple_dp import ConfigError\n"
    done = environment.run(environment.python, "-c", script, cwd=tmp_path)
    assert SENTENCE.search(done.stderr)


def test_what_python_imports_at_its_start_is_no_way_in(environment, project):
    """A `sitecustomize` that imports the packages of Acme comes before everything."""
    (project / "sitecustomize.py").write_text("import pipelines\n")
    refused(environment.run(environment.dapple, "--help", cwd=project, PYTHONPATH="."))


def test_folders_without_an_init_are_no_way_in(environment, tmp_path):
    """A folder of the name is a namespace package, which Python finds after ours on any path."""
    for name in own_packages.BEGINNINGS:
        (tmp_path / name).mkdir()
    done = environment.run(environment.dapple, "--help", cwd=tmp_path, PYTHONPATH=".")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_init_that_was_taken_away_is_refused(tmp_path, wheel):
    """Python would go on with a namespace package, and join it with any other of the name."""
    user = installed.new_environment(tmp_path / "venv")
    user.install(wheel)
    (user.packages / "transforms" / "__init__.py").unlink()
    refused(user.run(user.dapple, "fit", "--help", cwd=tmp_path))


def test_processes_that_the_command_starts_find_the_same_packages(environment, project):
    """Workers of a runner that uses processes are started with `-m`, for which the working folder comes first."""
    script = (
        "import subprocess, sys\nfrom dapple_dp.own_packages import claim, lend_to_children\n"
        "claim(); lend_to_children()\n"
        "subprocess.run([sys.executable, '-c', 'import pipelines; print(pipelines.__file__)'], check=True)\n"
    )
    done = environment.run(environment.python, "-c", script, cwd=project, PYTHONPATH=".")
    assert done.stdout == f"{environment.packages / 'pipelines' / '__init__.py'}\n", done.stderr


def test_what_begins_as_ours_is_ours():
    """If it fails: write the first words of the package's file into `BEGINNINGS`."""
    for name, beginning in own_packages.BEGINNINGS.items():
        text = (ROOT / name / "__init__.py").read_text()
        assert text.startswith(beginning)
        assert ast.get_docstring(ast.parse(text))


def test_nothing_but_the_three_names_is_taken(environment, project):
    """A finder that took more would put Dapple's libraries before modules of the user."""
    (project / "numpy_like.py").write_text("PLACE = 'mine'\n")
    script = "import dapple_dp; dapple_dp.ConfigError; import numpy_like; print(numpy_like.PLACE)"
    done = environment.run(environment.python, "-c", script, cwd=project)
    assert done.stdout == "mine\n", done.stderr


def test_the_guard_stands_on_pythons_own_library():
    """What it imports could be another's."""
    words = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import dapple_dp.command",
    ]
    subprocess.run(words, check=True, timeout=600)
