"""A project that has packages of its own called `schemas`, `transforms`, `pipelines` and `tests`.

It imports Dapple before or after them, from the wheel, from a checkout on PYTHONPATH and from an editable installation,
in scripts, in a notebook's kernel, and in Beam's workers of other processes.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from tests.scenes import installed, lake

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = installed.ACME
FIRST, LAST = (f"import {', '.join(f'{name}.mine' for name in NAMES)}\n", "")
FIT = """
import numpy as np
from dapple_dp import DPKMeans
if __name__ == "__main__":
    rows = np.random.default_rng(0).normal([[2.0, 2.0], [8.0, 7.0]] * 100, 0.4)
    model = DPKMeans(2, epsilon=8.0, delta=1e-6, domain=(0.0, 10.0)).fit(rows)
    print(model.cluster_centers_.shape, end=" ")
"""
USE = f"print([__import__(name + '.mine').mine.OWNER for name in {NAMES}])\n"
DONE = "(2, 2) ['acme', 'acme', 'acme', 'acme']\n"


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An environment without Dapple."""
    return installed.new_environment(tmp_path_factory.mktemp("empty") / "venv")


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    """Editable installations of a copy of the sources, by mode."""
    found = {}
    for mode in ("lenient", "strict"):
        folder = tmp_path_factory.mktemp(mode)
        found[mode] = installed.new_environment(folder / "venv")
        installed.copy_of_sources(folder / "checkout")
        found[mode].install_editable(folder / "checkout", mode)
    return found


@pytest.fixture
def project(tmp_path):
    return installed.acme_project(tmp_path)


@pytest.fixture(params=["wheel", "checkout", "lenient", "strict"])
def way(request):
    """A function that runs Python where Dapple is there in one of the ways."""
    if request.param == "checkout":
        found, variables = request.getfixturevalue("empty"), {"PYTHONPATH": str(ROOT)}
    elif request.param == "wheel":
        found, variables = request.getfixturevalue("environment"), {}
    else:
        found, variables = request.getfixturevalue("editable")[request.param], {}
    return lambda *words, cwd, **more: found.run(found.python, *words, cwd=cwd, **variables | more)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["theirs first", "ours first"])
def test_both_are_imported_in_either_order(way, project, first):
    (project / "run.py").write_text(FIRST + FIT + USE if first else FIT + USE)
    done = way("run.py", cwd=project)
    assert done.stdout == DONE, done.stderr


@pytest.mark.slow
def test_jobs_run_where_the_names_are_taken(way, project):
    """Runs the command in a folder and on a path with packages of the names that can't even be imported."""
    for name in NAMES:
        (project / name / "__init__.py").write_text("raise SystemExit('of Acme')\n")
    path = lake.write_lake(project / "lake", lake.mixture(300))
    (project / "job.yaml").write_text(json.dumps(lake.job(path, None, **lake.packed(1))))
    done = way("-m", "dapple_dp", "fit", "--config", "job.yaml", "--output", "out", cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "out" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["theirs first", "ours first"])
def test_both_are_imported_in_the_kernel_of_a_notebook(environment, project, first):
    """A kernel looks in the folder of the notebook before anything else, and keeps one process for all cells."""
    pytest.importorskip("ipykernel")
    cells = [FIRST, FIT, USE] if first else [FIT, FIRST, USE]
    script = f"""
    from jupyter_client.manager import start_new_kernel
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for cell in {cells!r}:
            said = client.execute_interactive(cell, timeout=300)
            assert said["content"]["status"] == "ok", said["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    """
    (project / "kernel.py").write_text(textwrap.dedent(script))
    done = environment.run(environment.python, "kernel.py", cwd=project)
    assert done.stdout.endswith(DONE), done.stderr


@pytest.mark.slow
def test_workers_of_other_processes_find_both(environment, project):
    """Beam starts them with `-m`, for which the working folder comes first."""
    script = """
    import apache_beam as beam
    from dapple_dp.pipelines.run.options import beam_options
    import pipelines.mine

    def owners(_):
        import schemas.mine, tests.mine
        from dapple_dp.schemas.choices import Trust
        return [pipelines.mine.OWNER, schemas.mine.OWNER, tests.mine.OWNER, Trust.__module__]

    if __name__ == "__main__":
        flags = ["--runner=DirectRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
        with beam.Pipeline(options=beam_options(flags)) as pipeline:
            _ = pipeline | beam.Create([1]) | beam.Map(owners) | beam.Map(print)
    """
    (project / "run.py").write_text(textwrap.dedent(script))
    done = environment.run(environment.python, "run.py", cwd=project, PYTHONPATH=str(project))
    assert "['acme', 'acme', 'acme', 'dapple_dp.schemas.choices']" in done.stdout, done.stderr


def test_folders_without_an_init_are_left_alone(environment, tmp_path):
    """A folder of a name is a namespace package of the project's."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("OWNER = 'acme'\n")
    script = f"from dapple_dp import ConfigError\n{USE}"
    done = environment.run(environment.python, "-c", script, cwd=tmp_path)
    assert done.stdout == "['acme', 'acme', 'acme', 'acme']\n", done.stderr


def test_dapple_imports_nothing_under_the_names_of_others(environment, tmp_path):
    """Not one of its modules stands at the top, where a package of a project would stand."""
    script = f"""
    import sys, dapple_dp
    [getattr(dapple_dp, name) for name in dapple_dp.__all__]
    from dapple_dp.pipelines.command.main import main
    print(sorted(name for name in sys.modules if name.partition(".")[0] in {NAMES}))
    """
    done = environment.run(environment.python, "-c", textwrap.dedent(script), cwd=tmp_path)
    assert done.stdout == "[]\n", done.stderr


def test_no_finder_is_left_behind(environment, tmp_path):
    script = "import sys; before = list(sys.meta_path); import dapple_dp; dapple_dp.ConfigError; "
    done = environment.run(
        environment.python, "-c", f"{script}print(sys.meta_path[:len(before)] == before)", cwd=tmp_path
    )
    assert done.stdout == "True\n", done.stderr


def test_a_package_beside_an_installed_dapple_is_not_part_of_it(environment, tmp_path):
    """Only in a checkout are Dapple's packages looked for beside `dapple_dp`."""
    done = environment.run(environment.python, "-c", "import dapple_dp; print(dapple_dp.__path__)", cwd=tmp_path)
    assert done.stdout == f"[{str(environment.packages / 'dapple_dp')!r}]\n", done.stderr


def test_links_are_for_tools_only():
    """Modules come from the folders, under the paths that people edit and see in a traceback."""
    for name in NAMES[:3]:
        assert os.readlink(ROOT / "dapple_dp" / name) == f"../{name}"
        module = importlib.import_module(f"dapple_dp.{name}")
        assert module.__file__ == str(ROOT / name / "__init__.py")


TYPED = """
from dapple_dp import DPKMeans
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.transforms.files.stores import STORE
one: int = beam_options
two: int = Algorithm.DP_LLOYD
three: str = STORE.exists("a")
four: int = DPKMeans(2)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["wheel", "strict", "checkout"])
def test_mypy_finds_the_names_from_another_project(request, tmp_path, name):
    """Each wrong line is found, so types are known. A lenient editable installation is a hook that mypy doesn't run."""
    (tmp_path / "typed.py").write_text(TYPED)
    variables = {"MYPYPATH": str(ROOT)} if name == "checkout" else {}
    found = request.getfixturevalue({"wheel": "environment", "checkout": "empty"}.get(name, "editable"))
    found = found[name] if name == "strict" else found
    words = ("--follow-imports=silent", "--python-executable", found.python, "typed.py")
    done = found.run(sys.executable, "-m", "mypy", *words, cwd=tmp_path, **variables)
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {6, 7, 8, 9}, done.stdout


def test_the_old_word_of_a_checkout_has_a_date():
    done = subprocess.run([sys.executable, "-m", "pipelines", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("dapple ")
    assert "`python -m pipelines` is deprecated and will be removed on 2027-05-31; use `dapple`" in done.stderr
