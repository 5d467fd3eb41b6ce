"""An environment with the built wheel, as a user has it: nothing of this repository is on its path."""

import dataclasses
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Mapping, Sequence

from deploy.local.downloads import ROOT
from deploy.local.worker_environment import build_wheel, sources

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
_TIMEOUT = 900
ACME = ("schemas", "transforms", "pipelines", "tests")
"""Names that projects give to packages of their own."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment; libraries come from that of the tests.

    Attributes:
      folder: of the environment.
    """

    folder: pathlib.Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def dapple(self) -> str:
        return str(self.folder / "bin" / "dapple")

    @property
    def packages(self) -> pathlib.Path:
        [found] = self.folder.glob("lib/python*/site-packages")
        return found

    def pip(self, *words: str) -> None:
        subprocess.run([*_PIP, "--python", self.python, *words], check=True, timeout=_TIMEOUT, env=clean_environment())

    def install(self, wheel: pathlib.Path) -> None:
        self.pip("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))

    def install_editable(self, checkout: pathlib.Path, mode: str) -> None:
        """Installs a checkout in setuptools' mode `lenient` or `strict`."""
        words = ("--no-deps", "--no-index", "--no-build-isolation", "--config-settings", f"editable_mode={mode}")
        self.pip("install", *words, "--editable", str(checkout))

    def run(self, *words: str, cwd: pathlib.Path, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            words,
            cwd=cwd,
            env=clean_environment(variables),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )


def acme_project(folder: pathlib.Path) -> pathlib.Path:
    """A project with packages called as Dapple's folders are, each with a module `mine`."""
    for name in ACME:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        (folder / name / "mine.py").write_text("OWNER = 'acme'\n")
    return folder


def clean_environment(more: Mapping[str, str] = {}) -> dict[str, str]:
    """The variables of this process without those that decide where Python looks."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")} | dict(more)


def new_environment(folder: pathlib.Path, only: Sequence[str] | None = None) -> Environment:
    """An environment with libraries, all or only those of some distributions, and without Dapple."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=_TIMEOUT)
    environment = Environment(folder)
    if only is None:
        (environment.packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in only or ():
        files = importlib.metadata.files(name) or ()
        for top in {path.parts[0] for path in files} - {"..", "__pycache__"}:
            (environment.packages / top).symlink_to(pathlib.Path(sysconfig.get_path("purelib")) / top)
    return environment


def dapple_wheel(folder: pathlib.Path) -> pathlib.Path:
    """The wheel of the sources as they are now, built without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    return build_wheel(folder)


def copy_of_sources(folder: pathlib.Path) -> pathlib.Path:
    """A checkout of its own with what Dapple is built from."""
    for path in sources():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for link in filter(os.path.islink, (ROOT / "dapple_dp").iterdir()):
        (folder / "dapple_dp" / link.name).symlink_to(os.readlink(link))
    return folder


def foreign_wheel(folder: pathlib.Path, files: Mapping[str, str], name: str = "acme-etl") -> pathlib.Path:
    """The wheel of another distribution with some files."""
    source = folder / f"{name}-source"
    for path, text in files.items():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text))
    packages = sorted({os.path.dirname(path) for path in files if "/" in path})
    modules = sorted(path.removesuffix(".py") for path in files if "/" not in path)
    about = f"name={name!r}, version='1.0', packages={packages}, py_modules={modules}"
    (source / "setup.py").write_text(f"from setuptools import setup\nsetup({about})\n")
    words = [*_PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(words, check=True, capture_output=True, timeout=_TIMEOUT, env=clean_environment())
    [wheel] = folder.glob(f"{name.replace('-', '_')}-*.whl")
    return wheel
