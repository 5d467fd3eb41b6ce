"""What installing Dapple takes, which of its requirements its jobs import, and how it works with other packages.

Two environments get the wheel alone, compiled by pip and not. In the latter every kind of job runs, and every process
writes down which modules it has. Then the wheel and other packages come into one environment, in both orders. All
environments are new, are in a temporary folder, and nothing comes from pip's cache.
"""

import collections
import importlib.metadata
import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine, measurement
from benchmarks.own_environment import Done, checkout, megabytes, run
from deploy.sbom import EXTRAS

OTHERS = "pandas scikit-learn polars torch"
CASES = (
    *("fit/record", "fit/encode", "fit/dp_lloyd", "fit/masked", "fit/elbow", "fit/tree", "stream", "prepare", "assign"),
    *("evaluate", "profile", "sweep", "reports/", "clustered_fl/r_dpcfl", "clustered_fl/mlp", "masked_jobs/"),
)
"""Of `tests.released_bytes`; `benchmarks.first_hour` adds init, plan, ledger, verify and the pages of help."""
_HOOK = """import atexit, os, sys
def written():
    files = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    with open(os.path.join({place!r}, str(os.getpid())), "w") as file:
        file.write("\\n".join(filter(None, files)))
atexit.register(written)
"""
_CASE = """import runpy, sys
sys.path.insert(0, "checkout")
sys.argv = ["released_bytes", "--only", {case!r}]
runpy.run_module("tests.released_bytes", run_name="__main__")
"""
_TOGETHER = """import {first}
import {second}
import numpy as np, pandas as pd, sklearn.cluster, torch
rows = pd.DataFrame(np.random.default_rng(0).random((2000, 2)), columns=["x", "y"])
found = dapple_dp.DPKMeans(3, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(rows).cluster_centers_
torch.tensor(found).sum(), polars.from_pandas(rows).to_arrow(), sklearn.cluster.KMeans(3).fit(rows)
"""


class Package(NamedTuple):
    """A distribution: its size, who requires it, and in how many processes a module of it was."""

    name: str
    size: float
    required_by: list[str]
    processes: int


def _plain(name: str) -> str:
    return re.split(r"[^\w.-]", name)[0].lower().replace("_", "-")


def environment(home: Path, name: str) -> Path:
    """A new one, and its folder of packages."""
    run("python3", "-m", "venv", home / name, home=home)
    [packages] = (home / name / "lib").glob("python*/site-packages")
    return packages


def install(home: Path, name: str, *what: str) -> Done:
    """By pip, without its cache."""
    return run(home / name / "bin" / "pip", "install", "-q", "--no-cache-dir", *what, home=home)


def versions(packages: Path) -> dict[str, str]:
    """Of what is installed."""
    return {
        _plain(each.metadata["Name"]): each.version for each in importlib.metadata.distributions(path=[str(packages)])
    }


def run_jobs(home: Path, name: str, packages: Path) -> Path:
    """Runs jobs in an environment; the folder in which each process has written files of its modules."""
    place = home / "imported"
    place.mkdir()
    (packages / "written_modules.py").write_text(_HOOK.format(place=str(place)))
    (packages / "written_modules.pth").write_text("import written_modules\n")
    python = home / name / "bin" / "python"
    for case in CASES:
        run(python, "-c", _CASE.format(case=case), home=home)
    run("bash", "-c", f"cd checkout && {python} -m benchmarks.first_hour --runs 1", home=home)
    return place


def sizes(packages: Path, imported: Path) -> list[Package]:
    """All distributions, the largest first."""
    owners: dict[str, str] = {}
    found: dict[str, float] = {}
    needed = collections.defaultdict(set)
    for each in importlib.metadata.distributions(path=[str(packages)]):
        name = _plain(each.metadata["Name"])
        files = [Path(os.path.realpath(file.locate())) for file in each.files or ()]
        owners |= {str(file): name for file in files}
        found[name] = sum(file.stat().st_blocks for file in files if file.exists()) * 512 / 1e6
        for need in each.requires or ():
            if "extra ==" not in need:
                needed[_plain(need)].add(name)
    seen = [
        {owners.get(os.path.realpath(line)) for line in file.read_text().splitlines()} for file in imported.iterdir()
    ]
    packed = [
        Package(name, size, sorted(needed[name]), sum(name in each for each in seen)) for name, size in found.items()
    ]
    return sorted(packed, key=lambda each: -each.size)


def together(home: Path, name: str, wheel: Path, others: list[str]) -> list[str]:
    """Rows of a table: the wheel and other packages in one environment, in one order and in the other."""
    rows = []
    steps = ([str(wheel)], others) if name == "dapple-first" else (others, [str(wheel)])
    packages = environment(home, name)
    for step in steps:
        before = versions(packages)
        done = install(home, name, *step)
        after = versions(packages)
        moved = [f"{each} {old} to {after.get(each)}" for each, old in before.items() if after.get(each) != old]
        checked = run(home / name / "bin" / "pip", "check", home=home, code=None).said.strip()
        what = "Dapple" if step == [str(wheel)] else " ".join(others)
        rows.append(
            f"| {name} | {what} | {done.wall:.0f} | {done.cpu:.0f} | {megabytes(packages):.0f} | "
            f"{', '.join(moved) or 'nothing'} | {checked} |"
        )
    for first, second in (("dapple_dp", "torch, polars"), ("torch, polars", "dapple_dp")):
        run(home / name / "bin" / "python", "-c", _TOGETHER.format(first=first, second=second), home=home)
    run("rm", "-r", home / name, home=home)
    return rows


def alone(home: Path, wheel: Path) -> tuple[list[str], list[Package]]:
    """Rows of a table for the wheel alone, compiled by pip and not; and what is there, after jobs in the latter."""
    rows = []
    for flag in ("--compile", "--no-compile"):
        packages = environment(home, flag.strip("-"))
        done = install(home, flag.strip("-"), flag, str(wheel))
        rows.append(f"| `pip install {flag}` | {done.wall:.0f} | {done.cpu:.0f} | {megabytes(packages):.0f} |")
    imported = run_jobs(home, "no-compile", packages)
    rows.append(f"| the same, after all jobs | | | {megabytes(packages):.0f} |")
    return rows, sizes(packages, imported)


def extras(home: Path) -> list[str]:
    """The lines on what each extra brings beside the requirements of the wheel: its pins alone, in a folder."""
    environment(home, "extras")
    rows = []
    for name, pins in sorted(EXTRAS.items()):
        flags = ("--no-deps", "--no-compile", "--require-hashes", "--target", str(home / name))
        install(home, "extras", *flags, "-r", str(pins))
        found = sorted((megabytes(each), each.name) for each in (home / name).iterdir() if each.is_dir())
        largest = ", ".join(f"{each} {size:.0f}" for size, each in reversed(found[-3:]) if size >= 1.0)
        rows.append(f"| `{name}` | {len(versions(home / name))} | {megabytes(home / name):.0f} | {largest} |")
    head = ["| extra | packages | MB | largest folders, MB |", "| --- | --- | --- | --- |"]
    about = "Pinned packages that come on top of those of the wheel, compiled files aside."
    return ["## What each extra brings", "", about, "", *head, *rows]


def report(rows: list[str], packages: list[Package], both: list[str]) -> list[str]:
    """The lines of the results."""
    idle = [each for each in packages if not each.processes and each.name not in ("dapple-dp", "pip", "setuptools")]
    size, left = (sum(each.size for each in found) for found in (packages, idle))
    return [
        *machine.heading("What installing takes"),
        "Megabytes are millions of bytes on the disk, of the folder of packages. All requirements come in wheels.",
        "",
        "## The wheel alone",
        "",
        "| how | wall, s | CPU, s | MB |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        "Without `--compile` Python compiles what is imported, when it is imported first.",
        "",
        "## Which packages, and who imports them",
        "",
        f"{len(packages)} packages have {size:.0f} MB, compiled files aside. {len(idle)} of them, with {left:.0f} MB, "
        f"were imported by no process of any job: {', '.join(each.name for each in idle)}. A package counts as "
        "imported if a module of it was there when a process ended.",
        "",
        "| package | MB | required by | processes that import it |",
        "| --- | --- | --- | --- |",
        *(f"| {each.name} | {each.size:.1f} | {', '.join(each.required_by)} | {each.processes} |" for each in packages),
        "",
        "## With other packages",
        "",
        "Last, one program imported all of them, in both orders, and fitted rows of pandas by Dapple.",
        "",
        "| environment | installed | wall, s | CPU, s | MB then | what changed its version | `pip check` |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *both,
    ]


def main() -> None:
    """Measures, and writes the tables."""
    parser = measurement.script(__doc__)
    parser.add_argument("--others", default=OTHERS, help=f"packages to install beside Dapple; default: {OTHERS}")
    parser.add_argument("--extras", action="store_true", help="measure what each extra brings, and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dapple-") as place:
        home = Path(place)
        if options.extras:
            measurement.show([*machine.heading("What the extras take"), *extras(home)], options.out)
            return
        sources = checkout(home / "checkout")
        environment(home, "builder")
        run(home / "builder" / "bin" / "pip", "wheel", "-q", "--no-deps", "-w", home / "dist", sources, home=home)
        [wheel] = (home / "dist").glob("*.whl")
        rows, packages = alone(home, wheel)
        both = [
            row
            for name in ("dapple-first", "dapple-last")
            for row in together(home, name, wheel, options.others.split())
        ]
    measurement.show(report(rows, packages, both), options.out)


if __name__ == "__main__":
    main()
