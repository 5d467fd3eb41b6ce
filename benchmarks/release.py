"""A release as its users meet it: built twice, installed in a bare environment, and used from a CSV file to a check.

    python -m benchmarks.release --out benchmarks/results/release.md

1. `python -m deploy.build`: wheel and source archive, both built twice in two places and equal bit by bit, the list of
   parts (`python -m deploy.sbom`), and the sums of all.
2. A new environment with the pins of `requirements.txt`, whose digests pip checks, and the wheel.
3. There, in a folder with `customers.csv` alone and nothing of this repository on any path: `dapple init`, the public
   ranges of the tutorial filled in by hand, `plan`, `fit` and `verify`.
4. `verify_release.py` of the release, in an environment of the three packages that it names, which has no Dapple.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, measurement
from deploy.build import SUMS

ROOT = Path(__file__).resolve().parents[1]
RANGES = {"age": "18, 100", "visits_per_month": "0, 31", "basket": "0, 150", "online_percent": "0, 100"}
"""Of docs/tutorials/csv.md: the public range of each column that is no constant."""
_PIP = ("-m", "pip", "--disable-pip-version-check", "-q", "install")
_CHECKER = ("numpy", "pyarrow", "dp-accounting")
_BOM = "cyclonedx-bom==7.5.0"


class Desk:
    """A folder of one release and its user, and how long each step took."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.seconds: dict[str, float] = {}

    def run(self, step: str, *words: str, cwd: Path | None = None) -> str:
        """One command, which must succeed; its stdout."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        start = time.perf_counter()
        done = subprocess.run(words, cwd=cwd or ROOT, env=kept, capture_output=True, text=True)
        self.seconds[step] = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{step} ended with code {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def environment(self, name: str, *words: str) -> Path:
        """A new environment with what pip installs there; its folder of commands."""
        place = self.folder / name
        self.run(f"{name}: new", sys.executable, "-m", "venv", str(place))
        for index, each in enumerate(words):
            self.run(f"{name}: install {index + 1}", str(place / "bin" / "python"), *_PIP, *each.split())
        return place / "bin"


def release(desk: Desk) -> Path:
    """Built; the list of parts is made in an environment of its own."""
    bom, folder = desk.folder / "sbom.cdx.json", desk.folder / "release"
    tool = desk.environment("parts", _BOM)
    desk.run("list of parts", str(tool / "python"), "-m", "deploy.sbom", str(bom))
    desk.run("two builds", sys.executable, "-m", "deploy.build", str(folder), "--sbom", str(bom))
    desk.run("sha256sum -c", "sha256sum", "--strict", "-c", SUMS, cwd=folder)
    return folder


def used(desk: Desk, folder: Path) -> list[str]:
    """From a CSV file to a check without Dapple; what the last two steps print."""
    [wheel] = folder.glob("*.whl")
    pins = ROOT / "requirements.txt"
    own = desk.environment("user", f"--require-hashes -r {pins}", f"--no-deps --no-index {wheel}")
    home = desk.folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "examples" / "customers" / "customers.csv", home)
    dapple = str(own / "dapple")
    init = ("init", "--data", "customers.csv", "--output", "job.yaml", "--clusters", "4", "--unit", "record")
    desk.run("dapple init", dapple, *init, cwd=home)
    _fill_in(home / "job.yaml")
    desk.run("dapple plan", dapple, "plan", "--config", "job.yaml", "--rows", "4000", cwd=home)
    desk.run("dapple fit", dapple, "fit", "--config", "job.yaml", "--output", "result", cwd=home)
    verified = desk.run("dapple verify", dapple, "verify", "result", cwd=home)
    report = (home / "result" / "report.html").stat().st_size
    checker = desk.environment("checker", " ".join(_CHECKER))
    checked = desk.run(
        "verify_release.py", str(checker / "python"), str(folder / "verify_release.py"), "result", cwd=home
    )
    return [f"report.html: {report:,} bytes", *verified.splitlines(), *checked.splitlines()]


def _fill_in(job: Path) -> None:
    """The ranges, and no column of which every value is the same."""
    text = job.read_text()
    for name, ends in RANGES.items():
        text = text.replace(f'"{name}":  # FILL IN two numbers, such as [0, 100].', f'"{name}": [{ends}]')
    lines = [line for line in text.splitlines() if '"vat_percent":' not in line]
    job.write_text("\n".join(lines).replace("features: [vat_percent, ", "features: [") + "\n")


def main() -> None:
    """Does it all, and says what came out."""
    given = measurement.script(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        desk = Desk(Path(temporary))
        folder = release(desk)
        lines = used(desk, folder)
        sums = [(path.name, path.stat().st_size, path.read_bytes()) for path in sorted(folder.iterdir())]
    table = [f"| `{name}` | {size:,} | `{hashlib.sha256(text).hexdigest()}` |" for name, size, text in sums]
    steps = [f"| {step} | {seconds:.1f} |" for step, seconds in desk.seconds.items()]
    shown = [line.replace(temporary, "FOLDER") for line in lines]
    head = machine.heading("A release, built twice and used")
    digests = ["Each file of both builds has this SHA-256:", "", "| file | bytes | SHA-256 |", "| --- | --- | --- |"]
    took = ["", "| step | seconds |", "| --- | --- |", *steps]
    measurement.show([*head, *digests, *table, *took, "", "```text", *shown, "```"], given.out)


if __name__ == "__main__":
    main()
