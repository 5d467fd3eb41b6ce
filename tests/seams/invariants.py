"""Invariants of every run, computed from its files, its page and the command's output, and from nothing else."""

import dataclasses
import hashlib
import json
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from dapple_dp.schemas.tables.encoder import Encoder
from tests.scenes.lake import Outcome
from tests.seams.pages import Page

_EVENT = ("path", "shape", "mechanism", "geometry", "sensitivity_lattice")
_NOISE = ("noise_multiplier", "noise_stddev_lattice")
_SPREAD = {"discrete_gaussian": 1.0, "discrete_laplace": math.sqrt(2.0)}
"""Noise stddev over noise multiplier times sensitivity, by mechanism."""
_PLANNED = ("path", "shape", "mechanism", "noise_multiplier")


def summary(outcome: Outcome) -> dict[str, Any]:
    """The last line on stdout."""
    found = json.loads(outcome.out.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def check_words(outcome: Outcome) -> None:
    """A command ends well, or is refused in one sentence: nothing is unexpected, and no traceback is shown."""
    assert outcome.code in (0, 2, 3), outcome.err
    assert "unexpected" not in outcome.err.lower(), outcome.err
    assert "Traceback" not in outcome.out + outcome.err
    if outcome.code:
        last = outcome.err.splitlines()[-1]
        assert last.endswith((".", "?")), outcome.err
        assert re.search(r"\b(None|nan|NoneType|inf)\b(?!')", last) is None or "got None" in last, last


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The files of a run that has ended well."""

    folder: pathlib.Path

    def json(self, name: str) -> dict[str, Any]:
        """A file of JSON."""
        found = json.loads((self.folder / name).read_text())
        assert isinstance(found, dict)
        return found

    @property
    def releases(self) -> list[dict[str, Any]]:
        """Rows of `releases.parquet`, numbers of each included."""
        return pq.read_table(self.folder / "releases.parquet", partitioning=None).to_pylist()

    @property
    def entry(self) -> dict[str, Any]:
        """The registry's entry."""
        found = yaml.safe_load((self.folder / "deployment.yaml").read_text())
        assert isinstance(found, dict)
        return found

    @property
    def page(self) -> Page:
        """Its report."""
        return Page.of(self.folder / "report.html")

    def stddevs(self) -> dict[str, float]:
        """Noise of one number of a release by path, in the unit in which the release is stated."""
        return {row["path"]: row["noise_stddev_lattice"] * row["lattice_unit"] for row in self.releases}


def check_run(run: Run, asked: Mapping[str, Any], outcome: Outcome, excess: tuple[float, float]) -> None:
    """All files, the page and the last line agree; `excess` is drawn over promised variance."""
    check_account(run, excess)
    for check in (check_files, check_releases, check_entry, check_clusters):
        check(run)
    check_page(run, asked)
    check_statement(run, asked, outcome)


def check_statement(run: Run, asked: Mapping[str, Any], outcome: Outcome) -> None:
    """Checks that what was asked for is what was spent and is said, and everybody counts the same warnings."""
    check_warnings(run, outcome)
    said, statement = summary(outcome), run.json("privacy.json")
    for name in ("epsilon", "delta"):
        assert said[name] == statement[name]
    assert 0.0 < statement["epsilon"] <= asked["epsilon"] * (1 + 1e-12)
    assert statement["delta"] == asked["delta"]
    assert statement["unit"] == asked["unit"]


def check_account(run: Run, excess: tuple[float, float]) -> None:
    """Every release is an event, and every event a release, with one sensitivity and at least the noise it counts."""
    events = run.json("privacy.json")["events"]
    rows = run.releases
    assert [each["path"] for each in events] == [each["path"] for each in rows]
    for event, row in zip(events, rows, strict=True):
        for name in _EVENT:
            assert event.get(name) == row.get(name), (name, event["path"])
        for name in _NOISE:
            ratio = (row[name] / event[name]) ** 2
            assert excess[0] * (1 - 1e-3) <= ratio <= excess[1] * (1 + 1e-3), (name, event["path"], ratio)


def check_releases(run: Run) -> None:
    """Noise is sensitivity times multiplier, in the unit and on the lattice, and each release has all its numbers."""
    for row in run.releases:
        assert len(row["values_lattice"]) == _size(row), row["path"]
        assert row["noise_stddev_lattice"] > 0.0
        told = row["sensitivity_lattice"] * row["lattice_unit"]
        assert math.isclose(row["sensitivity"], told, rel_tol=1e-6), row["path"]
        wanted = row["sensitivity_lattice"] * row["noise_multiplier"] * _SPREAD[row["mechanism"]]
        assert math.isclose(row["noise_stddev_lattice"], wanted, rel_tol=1e-3), (
            row["path"],
            row["noise_stddev_lattice"],
            wanted,
        )


def _size(row: Mapping[str, Any]) -> int:
    return int(np.prod(row["shape"]))


def check_files(run: Run) -> None:
    """`run.json` knows every file by its digest."""
    digests = run.json("run.json")["files"]
    found = {path.name for path in run.folder.iterdir() if path.is_file()} - {"run.json"}
    assert found == set(digests)
    for name, digest in digests.items():
        assert hashlib.sha256((run.folder / name).read_bytes()).hexdigest() == digest, name


def check_entry(run: Run) -> None:
    """The registry's entry says the epsilon, delta and unit of the statement."""
    statement, loss = run.json("privacy.json"), run.entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == statement["epsilon"]
    assert loss["privacy_parameters"]["delta"] == statement["delta"]
    assert loss["privacy_unit"] == statement["unit"]
    details = run.entry["deployment"]["implementation"]["mechanisms"]
    assert f"{len(run.releases)} release" in details


def check_clusters(run: Run) -> None:
    """Centers are finite, numbered once, and as wide as the features that are named."""
    rows = pq.read_table(run.folder / "centers.parquet", partitioning=None).to_pylist()
    manifest = run.json("run.json")
    assert len({row["cluster"] for row in rows}) == len(rows) > 0
    assert {row["cluster"] for row in rows} <= set(range(manifest["clusters"]["next_number"]))
    for row in rows:
        assert np.isfinite(row["center"]).all()
        assert row["noisy_size"] is None or math.isfinite(row["noisy_size"])
        assert len(row["center"]) == len(manifest["features"])


def check_centers(run: Run, n_clusters: int) -> None:
    """Checks that there are as many finite centers as asked for, as wide as the features that are named."""
    rows = pq.read_table(run.folder / "centers.parquet", partitioning=None).to_pylist()
    assert len(rows) == n_clusters
    for row in rows:
        assert np.isfinite(row["center"]).all()
        assert len(row["center"]) == len(run.json("run.json")["features"])


def check_page(run: Run, asked: Mapping[str, Any], more_noises: Sequence[float] = ()) -> None:
    """Checks that what the page says of the guarantee is what the files say, as far as its digits go.

    Args:
      run: whose page it is.
      asked: its section `privacy`.
      more_noises: standard deviations that the files do not name, but let a reader compute.
    """
    page, statement, rows = run.page, run.json("privacy.json"), run.releases
    assert re.search(r"\bnan\b|\bNone\b|\binf\b", page.text) is None
    (epsilon,) = {f"{float(text):.4g}" for text in page.after("ε")[:1]}
    assert epsilon == f"{statement['epsilon']:.4g}"
    assert float(page.after("δ")[0]) == float(f"{statement['delta']:.4g}")
    assert page.labels["Privacy unit"].startswith(statement["unit"])
    if "Budget of this run" in page.labels:
        spent, of = re.findall(r"\d[\d.]*(?:e[+-]?\d+)?", page.labels["Budget of this run"])[:2]
        assert (float(spent), float(of)) == (float(f"{statement['epsilon']:.6g}"), asked["epsilon"])
    _check_table(page, rows)
    _check_plus_minus(run, page, more_noises)


def _check_table(page: Page, rows: list[dict[str, Any]]) -> None:
    """The table of releases names all of them, with numbers of one source."""
    table = page.table("release", "tells", "mechanism")
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        assert row["path"].endswith(line["release"])
        assert int(line["numbers"].replace(",", "")) == _size(row)
        assert float(line["noise multiplier"].replace(",", "")) == float(f"{row['noise_multiplier']:.4g}"), row["path"]
        assert float(line["sensitivity"].split(" ")[0].replace(",", "")) == float(f"{row['sensitivity']:.4g}"), row[
            "path"
        ]
    noise = {line["release"]: line["noise stddev"] for line in page.table("release", "noise stddev")}
    for row in rows:
        told = next((text for name, text in noise.items() if row["path"].endswith(name)), None)
        if told is not None:
            stddev = row["noise_stddev_lattice"] * row["lattice_unit"]
            assert float(told.replace(",", "")) == float(f"{stddev:.4g}"), row["path"]


def known_noises(run: Run) -> Iterator[float]:
    """Standard deviations that files name."""
    yield from run.stddevs().values()
    yield from run.json("privacy.json")["sizes"]["noise_stddev"]
    cost = run.json("run.json").get("noisy_cost")
    if cost:
        yield cost["stddev"]


def _check_plus_minus(run: Run, page: Page, more: Sequence[float]) -> None:
    """Beside every ± stands two times a noise that the files name."""
    known = [2.0 * stddev for stddev in (*known_noises(run), *more)]
    for text in page.after("±"):
        told = float(text.replace(",", ""))
        assert told > 0.0
        assert any(math.isclose(told, value, rel_tol=0.06) for value in known), (text, sorted(known))


def check_warnings(run: Run, outcome: Outcome) -> None:
    """Page, log and last line count the same warnings."""
    logged = sum(map(int, re.findall(r"^dapple: the report has (\d+) warnings?: ", outcome.err, re.MULTILINE)))
    shown = (run.folder / "report.html").read_text().count("<strong>Warning</strong>")
    assert summary(outcome)["warnings"] == logged == shown


def check_plan(planned: Mapping[str, Any], run: Run, within: tuple[float, float]) -> None:
    """Checks that the plan was spent and drawn; `within` is drawn over foretold variance, least and most."""
    statement, stddevs = run.json("privacy.json"), run.stddevs()
    assert planned["epsilon"] == statement["epsilon"]
    assert planned["delta"] == statement["delta"]
    assert planned["unit"] == statement["unit"]
    assert planned["algorithm"] == statement["algorithm"]
    assert len(planned["releases"]) == len(statement["events"])
    for said, event in zip(planned["releases"], statement["events"], strict=True):
        assert {name: said[name] for name in _PLANNED} == {name: event[name] for name in _PLANNED}
        if said["noise_stddev"] is None or not said["fixed"]:
            continue
        ratio = (stddevs[event["path"]] / said["noise_stddev"]) ** 2
        assert within[0] * (1 - 1e-3) <= ratio <= within[1] * (1 + 1e-3), (event["path"], ratio)


def check_centers_on_page(run: Run) -> None:
    """Centers and sizes on the page are those of `centers.parquet`, in units where it has them."""
    page, manifest = run.page, run.json("run.json")
    rows = pq.read_table(run.folder / "centers.parquet", partitioning=None).to_pylist()
    centers = [row.get("center_in_units") or row["center"] for row in rows]
    if manifest["encoding"] is not None and "center_in_units" not in rows[0]:
        # Columns of numbers beside columns of codes: the page has each number in the unit of its column.
        centers = Encoder.from_json(manifest["encoding"]).decoded(np.array(centers)).tolist()
    units = {str(row["cluster"]): center for row, center in zip(rows, centers, strict=True)}
    sizes = {str(row["cluster"]): row["noisy_size"] for row in rows}
    lines = page.table("feature")
    assert len(lines) == len(manifest["features"])
    for index, line in enumerate(lines):
        for head, cell in line.items():
            if head.strip("()") in units and not cell.endswith("%"):
                told, value = (
                    float(cell.replace("\N{MINUS SIGN}", "-").replace(",", "")),
                    units[head.strip("()")][index],
                )
                assert math.isclose(told, value, rel_tol=6e-3, abs_tol=0.51 * 10.0 ** -len(cell.partition(".")[2])), (
                    line["feature"],
                    head,
                    cell,
                    value,
                )
    for line in page.table("cluster", "stands out by"):
        (head,) = [name for name in line if name.startswith("noisy size")]
        told, value = (
            float(line[head].replace("\N{MINUS SIGN}", "-").replace(",", "")),
            sizes[line["cluster"].strip("()")],
        )
        assert math.isclose(told, value, rel_tol=6e-3, abs_tol=0.6), (line, value)


def check_curated(run: Run, job: Mapping[str, Any]) -> None:
    """Checks that what the curator wrote stands word by word in entry, record and page."""
    entry, page = json.dumps(run.entry), run.page.text
    for text in [*job.get("deployment", {}).values(), *job.get("justification", {}).values()]:
        assert str(text) in entry or str(text) in page, text
        assert str(text) in json.dumps(run.json("run.json")["settings"]), text
    name = job["data"].get("name")
    assert run.entry["deployment"]["basic"]["name"] == (name or "unknown")
    frame = run.json("run.json")["frame"]
    if frame is None:  # Rows were moved together, and the norm is that of the moved ones.
        return
    norm = frame["clipping_norm"]
    assert run.page.labels["Clipping norm"].startswith(f"{norm:.4g} "), run.page.labels["Clipping norm"]


def check_left(run: Run, shown: Mapping[str, Any], dataset: str) -> None:
    """Checks that what the page says is left is what the record says, and what the ledger has."""
    ledger, left = run.json("run.json")["ledger"], run.page.labels["Budget left"]
    assert left.startswith(f"epsilon {ledger['after']['epsilon']:.4g}, delta {ledger['after']['delta']:.4g} "), left
    state = shown["datasets"][dataset]
    assert math.isclose(ledger["after"]["epsilon"], state["limit"]["epsilon"] - state["spent"]["epsilon"], rel_tol=1e-9)
    assert ledger["dataset"] == dataset


def check_places(run: Run, job: Mapping[str, Any]) -> None:
    """No published file says where a key, a secret or a state is."""
    masked = job.get("masked", {})
    places = [job.get("key_uri"), *(masked.get(name) for name in ("secret_uri", "state_uri", "identity_uri"))]
    for path in run.folder.iterdir():
        content = path.read_bytes() if path.is_file() else b""
        for place in filter(None, places):
            assert place.encode() not in content, (path.name, place)
