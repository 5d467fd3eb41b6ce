"""A release as its users meet it: built twice, installed in bare environments, and used from a CSV file to a check.

    python -m benchmarks.release --out benchmarks/results/release.md

1. `python -m deploy.build`: wheel and source archive, both built twice in two places and equal bit by bit, the list of
   parts (`python -m deploy.sbom`), and the sums of all.
2. By the command: an environment with the pins of `requirements.txt`, whose digests pip checks, and the wheel. There,
   in a folder with a CSV file alone and nothing of this repository on any path: `dapple init`, `fit` and `verify`.
3. In Python without Beam: an environment with the pins of `requirements-core.txt` and the wheel, and a program of a few
   lines over the same file.
4. `verify_release.py` checks both folders in the second environment, which has what it needs.

The file is `examples/customers/customers.csv` as a spreadsheet in Europe saves it: semicolons, decimal commas, Latin
letters, and holes.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, measurement
from benchmarks.own_environment import megabytes
from deploy.build import SUMS

ROOT = Path(__file__).resolve().parents[1]
RANGES = {"age": "18,100", "visits_per_month": "0,31", "basket": "0,150", "online_percent": "0,100"}
"""Of docs/tutorials/csv.md: the public range of each column that is no constant."""
CONSTANT = "vat_percent"
HOLES = 25
"""One row of so many has no basket."""
PROGRAM = f"""
import sys
import pyarrow as pa, pyarrow.csv
from dapple_dp import DPKMeans

read = pa.csv.ReadOptions(encoding="cp1252")
form = pa.csv.ParseOptions(delimiter=";"), pa.csv.ConvertOptions(decimal_point=",")
table = pa.csv.read_csv("customers.csv", read, *form).select({list(RANGES)}).drop_null()
domain = {[tuple(float(end) for end in ends.split(",")) for ends in RANGES.values()]}
model = DPKMeans(4, epsilon=1.0, delta=1e-6, domain=domain).fit(table)
model.save("model")
print("Epsilon in Python:", round(model.privacy_.epsilon, 4), "Beam is there:", "apache_beam" in sys.modules)
"""
_PIP = ("-m", "pip", "--disable-pip-version-check", "-q", "install")
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


def used(desk: Desk, folder: Path) -> tuple[list[str], dict[str, float]]:
    """From a CSV file to a check; what the steps print, and the megabytes of each environment."""
    [wheel] = folder.glob("*.whl")
    home = desk.folder / "home"
    home.mkdir()
    _write(home / "customers.csv")
    own = desk.environment("user", f"--require-hashes -r {ROOT / 'requirements.txt'}", f"--no-deps --no-index {wheel}")
    dapple, said = str(own / "dapple"), []
    flags = ["--clusters", "4", "--unit", "record", "--on_invalid_rows", "drop"]
    for name, ends in (RANGES | {CONSTANT: "8.1,8.1"}).items():
        flags += ["--domain", f"{name}={ends}"]
    desk.run("dapple init", dapple, "init", "--data", "customers.csv", "--output", "job.yaml", *flags, cwd=home)
    desk.run("dapple fit", dapple, "fit", "--config", "job.yaml", "--output", "result", cwd=home)
    said += [f"report.html: {(home / 'result' / 'report.html').stat().st_size:,} bytes"]
    said += desk.run("dapple verify", dapple, "verify", "result", cwd=home).splitlines()
    core = desk.environment(
        "core", f"--no-deps --require-hashes -r {ROOT / 'requirements-core.txt'}", f"--no-deps --no-index {wheel}"
    )
    python = str(core / "python")
    said += desk.run("program", python, "-c", PROGRAM, cwd=home).splitlines()
    said += desk.run("dapple verify, without Beam", str(core / "dapple"), "verify", "model", cwd=home).splitlines()
    for made in ("result", "model"):
        checked = desk.run(f"verify_release.py {made}", python, str(folder / "verify_release.py"), made, cwd=home)
        said += checked.splitlines()
    return said, {name: megabytes(desk.folder / name) for name in ("user", "core")}


def _write(path: Path) -> None:
    """The file as a spreadsheet saves it."""
    head, *rows = (ROOT / "examples" / "customers" / "customers.csv").read_text().replace(",", ";").splitlines()
    place = head.split(";").index("basket")
    lines = [head]
    for index, row in enumerate(rows):
        fields = row.replace(".", ",").replace(";CH;", ";Österreich;" if index % 2 else ";CH;").split(";")
        if index % HOLES == 0:
            fields[place] = ""
        lines.append(";".join(fields))
    path.write_bytes("\r\n".join([*lines, ""]).encode("cp1252"))


def main() -> None:
    """Does it all, and says what came out."""
    given = measurement.script(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        desk = Desk(Path(temporary))
        folder = release(desk)
        lines, sizes = used(desk, folder)
        sums = [(path.name, path.stat().st_size, path.read_bytes()) for path in sorted(folder.iterdir())]
    table = [f"| `{name}` | {size:,} | `{hashlib.sha256(text).hexdigest()}` |" for name, size, text in sums]
    steps = [f"| {step} | {seconds:.1f} |" for step, seconds in desk.seconds.items()]
    shown = [line.replace(temporary, "FOLDER") for line in lines]
    head = machine.heading("A release, built twice and used")
    digests = ["Each file of both builds has this SHA-256:", "", "| file | bytes | SHA-256 |", "| --- | --- | --- |"]
    took = ["", "| step | seconds |", "| --- | --- |", *steps]
    took += ["", "| environment | MB |", "| --- | --- |", *(f"| {name} | {size:.0f} |" for name, size in sizes.items())]
    measurement.show([*head, *digests, *table, *took, "", "```text", *shown, "```"], given.out)


if __name__ == "__main__":
    main()
