"""Runs of different jobs as they are published, and forgeries of them whose digests are recomputed, for a stranger."""

import dataclasses
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dapple_dp.pipelines.plan import verify
from dapple_dp.pipelines.run.folder import manifest_digest
from tests import released_bytes
from tests.released_bytes import Desk
from tests.scenes import lake

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "verify_release.py"
OURS = ("dapple_dp", "tests", "benchmarks", "apache_beam", "cryptography")
GUARD = f"""
import os, runpy, sys
ours = {OURS!r}
class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ours:
            raise ImportError(name)
sys.meta_path.insert(0, Guard())
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    if set(ours) & {{name.partition(".")[0] for name in sys.modules}}:
        os._exit(99)
"""
"""Runs a script in which nothing of ours can be imported, and ends with code 99 if something was."""
Change = Callable[[pathlib.Path], None]


def _case(name: str, job: str) -> Callable[[Desk], pathlib.Path]:
    def made(desk: Desk) -> pathlib.Path:
        run, argument = released_bytes.CASES[name]
        run(desk, argument)
        return desk.folder / "runs" / name / job

    return made


def _shares(desk: Desk) -> pathlib.Path:
    """A masked run whose senders split the noise among them."""
    options = {"noise_by": "clients", "scheme": "pairwise", "threshold": 3}
    settings = desk.fit("client", trust="masked", masked={"secret_uri": desk.secrets[0]} | options)
    return desk.run("fit/shares", "fit", settings | {"lloyd": {"steps": 1}})


RUNS: dict[str, Callable[[Desk], pathlib.Path]] = {
    "dp_lloyd, record": _case("fit/dp_lloyd-fast", "fit"),
    "dp_lloyd, client": _case("fit/dp_lloyd-best-client", "fit"),
    "feddp_kmeans, Laplace noise": _case("fit/paper-record", "fit"),
    "feddp_kmeans, record": _case("fit/record", "fit"),
    "one round, central tree": _case("fit/tree", "fit"),
    "one round, local reports": _case("reports/leaves", "decode"),
    "one round, shuffled reports": _case("reports/shuffled", "decode"),
    "dp_medians": _case("fit/dp_medians", "fit"),
    "k_prototypes": _case("fit/k_prototypes", "fit"),
    "spherical with names": _case("fit/spherical", "fit"),
    "second window of an epoch": _case("stream", "stream/2026-01-02"),
    "masked, noise in shares": _shares,
    "recurring, follows the first": _case("fit/warm-dp_lloyd", "fit"),
    "profile, client": _case("profile-client", "profile"),
    "clustered_fl": _case("clustered_fl/r_dpcfl", "clustered_fl"),
}
"""Small runs by what they are of; the recurring one follows the first."""


def publish(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Makes all runs below a new folder; returns their outputs by name."""
    desk = Desk(folder)
    return {name: make(desk) for name, make in RUNS.items()}


def edit_json(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of a JSON file."""

    def apply(folder: pathlib.Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True))

    return apply


def edit_rows(name: str, change: Callable[[list[dict[str, Any]]], object]) -> Change:
    """A change of the rows of a Parquet file, whose schema and metadata stay."""

    def apply(folder: pathlib.Path) -> None:
        table = pq.read_table(folder / name)
        rows = table.to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / name)

    return apply


def both(*changes: Change) -> Change:
    """One change after the other."""

    def apply(folder: pathlib.Path) -> None:
        for change in changes:
            change(folder)

    return apply


def seal(folder: pathlib.Path) -> None:
    """Recomputes all digests, as someone does who knows how they are made."""
    manifest = json.loads((folder / "run.json").read_text())
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    manifest["manifest_digest"] = manifest_digest(manifest)
    (folder / "run.json").write_text(json.dumps(manifest))


def _multipliers(factor: float, bound: float = 1.0) -> Change:
    """The first release says that it had a larger noise multiplier, and by default more noise."""

    def scaled(each: dict[str, Any]) -> None:
        each["noise_multiplier"] *= factor
        each["sensitivity_lattice"] = int(each["sensitivity_lattice"] * bound)
        each["noise_stddev_lattice"] = each["noise_multiplier"] * each["sensitivity_lattice"]
        if "sensitivity" in each:
            each["sensitivity"] *= bound

    return both(
        edit_json("privacy.json", lambda content: scaled(content["events"][0])),
        edit_rows("releases.parquet", lambda rows: scaled(rows[0])),
    )


def _stated(folder: pathlib.Path, epsilon: float) -> None:
    """States another epsilon wherever it is stated."""
    before = json.loads((folder / "privacy.json").read_text())["epsilon"]
    edit_json("privacy.json", lambda content: content.update(epsilon=epsilon))(folder)
    entry = (folder / "deployment.yaml").read_text()
    (folder / "deployment.yaml").write_text(entry.replace(str(before), str(epsilon)))


def _all_epsilons(folder: pathlib.Path) -> None:
    _stated(folder, 0.999)
    edit_json("run.json", lambda content: content["settings"]["privacy"].update(epsilon=1.0))(folder)


def _without_last_round(folder: pathlib.Path) -> None:
    """Removes the last round, with the epsilon that the others spend."""
    edit_json("privacy.json", lambda content: content.update(events=content["events"][:-2]))(folder)
    edit_rows("releases.parquet", lambda rows: rows.__delitem__(slice(-2, None)))(folder)
    refused = lake.run_command("verify", str(_sealed(folder))).err
    _stated(folder, float(refused.partition("composed epsilon ")[2].partition(",")[0]))


def _sealed(folder: pathlib.Path) -> pathlib.Path:
    seal(folder)
    return folder


def _moved(steps: float) -> Change:
    """A center that lies some lattice steps elsewhere, in one coordinate."""

    def apply(folder: pathlib.Path) -> None:
        frame = json.loads((folder / "run.json").read_text())["frame"]
        unit, middle = frame["clipping_norm"] * 2.0**-20, frame["center"][0]

        def move(rows: list[dict[str, Any]]) -> None:
            place = np.rint((rows[0]["center"][0] - middle) / unit) + steps
            rows[0]["center"][0] = float(place * unit + middle)

        edit_rows("centers.parquet", move)(folder)

    return apply


def _swapped(name: str, other: str) -> Change:
    """A file of another run of the same kind."""

    def apply(folder: pathlib.Path) -> None:
        shutil.copy(folder.parents[1] / "whole" / other / name, folder / name)

    return apply


def _unit(word: str) -> Change:
    return edit_json("privacy.json", lambda content: content.update(unit=word))


def _all_units(word: str) -> Change:
    asked = edit_json("run.json", lambda content: content["settings"]["privacy"].update(unit=word))
    return both(_unit(word), asked)


def _lower_weights(content: dict[str, Any]) -> None:
    content["epoch"].update(weights=[8, 2, 1])


def _other_page(folder: pathlib.Path) -> None:
    page = (folder / "report.html").read_text()
    (folder / "report.html").write_text(page.replace("epsilon", "epsilon, or less,"))


def signed(folder: pathlib.Path) -> str:
    """Signs a run; returns the public key, 64 hex digits."""
    key = Ed25519PrivateKey.from_private_bytes(lake.KEY)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    place = folder.parent / "officer.pem"
    place.write_bytes(key.private_bytes(*pem))
    (folder / "signature.json").write_bytes(verify.signed((folder / "run.json").read_bytes(), str(place)))
    return key.public_key().public_bytes_raw().hex()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forgery:
    """Change that someone made to a run.

    Attributes:
      run: of which.
      change: of its files.
      caught: a part of the sentence by which a stranger refuses it; None where nothing in the files can show.
      reseals: whether all digests were recomputed.
      signs: whether the run was signed before.
    """

    run: str
    change: Change
    caught: str | None
    reseals: bool = True
    signs: bool = False


FAST, FEDDP, CLIENTS = "dp_lloyd, record", "feddp_kmeans, record", "dp_lloyd, client"
FORGERIES = {
    "epsilon lowered in privacy.json": Forgery(
        run=FAST,
        change=edit_json("privacy.json", lambda content: content.update(epsilon=1.0)),
        caught="state the composed epsilon",
    ),
    "epsilon lowered in all files": Forgery(run=FEDDP, change=_all_epsilons, caught="state the composed epsilon"),
    "sensitivity halved, noise multiplier doubled": Forgery(
        run=FEDDP, change=_multipliers(2.0, 0.5), caught="have sensitivity 4294967296"
    ),
    "noise multiplier changed": Forgery(run=CLIENTS, change=_multipliers(1.01), caught="state the composed epsilon"),
    "a center moved off the lattice": Forgery(
        run=FEDDP, change=_moved(0.25), caught="hold centers on the lattice, got cluster 0 beside it"
    ),
    "a center moved by a lattice step": Forgery(
        run=FAST, change=_moved(1.0), caught="hold the centers that the last sums and counts give"
    ),
    "a release dropped from releases.parquet": Forgery(
        run="dp_medians",
        change=edit_rows("releases.parquet", lambda rows: rows.pop()),
        caught="list the releases of releases.parquet",
    ),
    "a round dropped, epsilon made to fit": Forgery(
        run=FAST, change=_without_last_round, caught="spend the epsilon asked for"
    ),
    "centers of another run of the job": Forgery(
        run=FAST,
        change=_swapped("centers.parquet", "recurring, follows the first"),
        caught="have the released sizes",
    ),
    "a file swapped, digests left": Forgery(
        run="one round, local reports",
        change=_swapped("centers.parquet", "one round, shuffled reports"),
        caught="centers.parquet must have the digest in run.json",
        reseals=False,
    ),
    "delta changed": Forgery(
        run="masked, noise in shares",
        change=edit_json("privacy.json", lambda content: content.update(delta=1e-9)),
        caught="have delta and unit of the settings",
    ),
    "unit changed from client to record": Forgery(
        run=CLIENTS, change=_unit("record"), caught="have delta and unit of the settings"
    ),
    "unit changed in all files": Forgery(run=CLIENTS, change=_all_units("record"), caught="have lattice steps of"),
    "weights of an epoch lowered": Forgery(
        run="second window of an epoch",
        change=both(*(edit_json(name, _lower_weights) for name in ("privacy.json", "run.json"))),
        caught="have sensitivity",
    ),
    "epsilon of shuffled reports lowered": Forgery(
        run="one round, shuffled reports",
        change=lambda folder: _stated(folder, 0.9),
        caught="state an epsilon that 1500 shuffled reports keep",
    ),
    "epsilon of one report lowered": Forgery(
        run="one round, local reports",
        change=edit_json("privacy.json", lambda content: content["events"][0].update(epsilon=3.9)),
        caught="keep its epsilon",
    ),
    "epsilon of silos lowered": Forgery(
        run="clustered_fl", change=lambda folder: _stated(folder, 7.0), caught="state epsilon"
    ),
    "sensitivity of a profile lowered": Forgery(
        run="profile, client",
        change=edit_json("privacy.json", lambda content: content["events"][2].update(sensitivity=1048576.0)),
        caught="have sensitivity 10485760",
    ),
    "page and digests changed, signed": Forgery(
        run=FAST, change=_other_page, caught="signature.json must be a signature of run.json", signs=True
    ),
    "page and digests changed, not signed": Forgery(run=FAST, change=_other_page, caught=None),
    "a center of feddp_kmeans moved by a lattice step": Forgery(run=FEDDP, change=_moved(1.0), caught=None),
    "rows of feddp_kmeans called clients in all files": Forgery(run=FEDDP, change=_all_units("client"), caught=None),
}
"""Forgeries by name. What nothing in the files can show stands last."""


def forge(runs: dict[str, pathlib.Path], name: str, folder: pathlib.Path) -> tuple[pathlib.Path, str | None]:
    """Makes a forgery in a folder; returns it, and the key by which the run was signed.

    Args:
      runs: of `publish`.
      name: of the forgery.
      folder: new.
    """
    forgery, place = FORGERIES[name], folder / "forged" / "run"
    for run in (forgery.run, "recurring, follows the first", "one round, shuffled reports"):
        shutil.copytree(runs[run], folder / "whole" / run, dirs_exist_ok=True)
    shutil.copytree(runs[forgery.run], place)
    key = signed(place) if forgery.signs else None
    forgery.change(place)
    if forgery.reseals:
        seal(place)
    return place, key


def check(*words: str, cwd: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """A stranger's call of the script, in a process in which nothing of ours can be imported."""
    command = [sys.executable, "-I", "-c", GUARD, str(SCRIPT), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def sections(out: str) -> dict[str, list[str]]:
    """Returns what was said of each folder."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in out.splitlines():
        if line.startswith("  "):
            lines.append(line.strip())
        else:
            lines = found.setdefault(line, [])
    return found
