"""Counts how large Dapple is, and compares it with the largest that `tests/data/ratchet.json` allows.

    python -m tests.ratchet                                   prints the counts and the limits
    python -m tests.ratchet --lower                           lowers limits to the counts
    python -m tests.ratchet --raise FIGURE --because REASON   raises a limit, and says for which user

A limit follows its count down, so what is removed doesn't come back unseen.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMITS = ROOT / "tests" / "data" / "ratchet.json"
PRODUCT = ("schemas", "transforms", "pipelines", "dapple_dp")
JOB = """\
algorithm: dp_lloyd
data: {path: rows.csv, features: [a, b]}
n_clusters: 2
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
clipping: {norm: domain, center: none}
dp_lloyd: {domain: [0, 100]}
"""
TRACED = '''\
"""Runs a plain fit, and prints which of our modules it loads, and which functions and lines it runs."""
import atexit, collections, json, os, sys, threading
root = sys.argv.pop(1)
sys.path.insert(0, root)
ours = tuple(os.path.join(root, name) + os.sep for name in ("schemas", "transforms", "pipelines", "dapple_dp"))
codes, lines = set(), collections.defaultdict(set)


def trace(frame, event, argument):
    code = frame.f_code
    if not code.co_filename.startswith(ours):
        return None
    codes.add(code)
    seen = lines[code.co_filename]

    def trace_lines(frame, event, argument):
        if event == "line":
            seen.add(frame.f_lineno)
        return trace_lines

    return None if code.co_name == "<module>" else trace_lines


def report():
    sys.settrace(None)
    functions = {code for code in codes if not code.co_name.startswith("<")}
    loaded = {file for name, module in list(sys.modules.items()) if (file := getattr(module, "__file__", None))
              and os.path.realpath(file).startswith(ours)}
    functions = {(os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno) for code in functions}
    json.dump({
        "modules": sorted(name for name in sys.modules if name.startswith("dapple_dp.")),
        "loaded": len(loaded),
        "files": len({file for file, _, _ in functions}),
        "functions": len(functions),
        "lines": sum(map(len, lines.values())),
    }, open("traced.json", "w"))


atexit.register(report)
threading.settrace(trace)
sys.settrace(trace)
from dapple_dp.pipelines.command import main
sys.exit(main.main(["fit", "--config", "job.yaml", "--output", "result"]))
'''


def write_job(folder: pathlib.Path) -> None:
    """Writes the job of a plain fit, and its CSV file with two columns."""
    rows = (f"{20 + 60 * (i % 2) + i % 7},{30 + i % 11}\n" for i in range(2000))
    (folder / "rows.csv").write_text("a,b\n" + "".join(rows))
    (folder / "job.yaml").write_text(JOB)


def traced_fit(folder: pathlib.Path) -> dict[str, Any]:
    """Traces `dapple fit` of a CSV file with two columns, in a process of its own.

    Args:
      folder: empty; the job and its output go there.

    Returns:
      `modules` by name, and how many were `loaded`; `files` in which functions ran, `functions` and `lines` that ran.
    """
    write_job(folder)
    # A first run on a machine: nothing is cached, and no flag is in the environment.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAPPLE_")}
    command = [sys.executable, "-c", TRACED, str(ROOT)]
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, env=kept | {"XDG_CACHE_HOME": str(folder / "cache")}
    )
    traced: dict[str, Any] = json.loads((folder / "traced.json").read_text())
    return traced


def counts(traced: Mapping[str, Any]) -> dict[str, int]:
    """Counts everything that has a limit.

    Args:
      traced: a plain fit.
    """
    import dapple_dp
    from dapple_dp.pipelines.command.job_schema import job_schema
    from dapple_dp.pipelines.command.main import overview

    product = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py") if not _is_link(path)]
    return {
        "files in which a plain fit runs functions": traced["files"],
        "modules that a plain fit loads": traced["loaded"],
        "functions that a plain fit runs": traced["functions"],
        "lines that a plain fit runs": traced["lines"],
        "product files": len(product),
        "product lines": sum(map(_lines, product)),
        "settings of fit": len(_settings(job_schema("fit"))),
        "words of the command": len(overview().commands),
        "public names without an example in the docs": sum(not _is_shown(name) for name in dapple_dp.__all__),
        "lines of benchmarks": sum(map(_lines, (ROOT / "benchmarks").rglob("*.py"))),
    }


def broken(found: Mapping[str, int], limits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The sentences on figures that are above their limits, or so far below that the limit has to follow.

    A processor of another type runs a few other lines, so half a percent decides nothing.
    """
    sentences = [f"{name} has no limit" for name in found if name not in limits]
    for name, limit in limits.items():
        count, most = found[name], limit["most"]
        if count > 1.005 * most:
            sentences.append(f"{name}: {count}, at most {most}")
        elif count < 0.98 * most:
            sentences.append(f"{name}: {count}, far below {most}; run `python -m tests.ratchet --lower`")
    return sentences


@functools.cache
def _examples() -> str:
    """All code in Python that the docs and the examples show."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = (block for page in pages for block in re.findall(r"```py.*?```", page.read_text(), re.DOTALL))
    files = (path.read_text() for pattern in ("docs/**/*.ipynb", "examples/**/*.py") for path in ROOT.glob(pattern))
    return "\n".join((*blocks, *files))


def _is_shown(name: str) -> bool:
    return re.search(rf"\b{name}\b", _examples()) is not None


def _is_link(path: pathlib.Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents if parent != ROOT and parent.is_relative_to(ROOT))


def _lines(path: pathlib.Path) -> int:
    return len(path.read_text().splitlines())


def _settings(schema: Mapping[str, Any]) -> set[str]:
    """The paths of all settings that hold a value; a section that may be left out is none."""
    leaves = set(_leaves({name: part for name, part in schema.items() if name != "$defs"}, schema["$defs"], ""))
    return {leaf for leaf in leaves if not any(other.startswith(f"{leaf}.") for other in leaves)}


def _leaves(section: Any, definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    """The settings of a schema that hold values and no further settings, by path."""
    inside = [
        definitions[name] for name in re.findall(r"#/\$defs/(\w+)", json.dumps(section.get("properties", section)))
    ]
    if "properties" not in section:
        deeper = [definition for definition in inside if "properties" in definition]
        for definition in deeper:
            yield from _leaves(definition, definitions, path)
        if not deeper:
            yield path
        return
    for name, setting in section["properties"].items():
        yield from _leaves({"of": setting}, definitions, f"{path}.{name}")


def main() -> None:
    """Prints counts and limits, and changes limits if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--raise", dest="raised")
    parser.add_argument("--because")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = counts(traced_fit(pathlib.Path(folder)))
    limits = json.loads(LIMITS.read_text())
    if asked.lower:
        for name, limit in limits.items():
            limit["most"] = min(limit["most"], found[name])
    if asked.raised:
        if not asked.because or asked.raised not in found:
            parser.error(f"--raise takes one of {', '.join(found)}, and --because the user who needs it")
        limits[asked.raised] = limits.get(asked.raised, {}) | {"most": found[asked.raised], "because": asked.because}
    if asked.lower or asked.raised:
        LIMITS.write_text(json.dumps(limits, indent=1) + "\n")
    for name, count in found.items():
        sys.stdout.write(f"{name:45} {count:7} {limits.get(name, {}).get('most', '-'):>7}\n")


if __name__ == "__main__":
    main()
