"""Digests of what small runs of every job release under test keys, to compare before and after a refactoring.

    python -m tests.released_bytes --write FILE    # runs everything and writes the digests
    python -m tests.released_bytes --check FILE    # runs everything and names what differs; exit code 1 if any does
    python -m tests.released_bytes --only fit/     # runs what starts so; prints, or checks that part of a file

Jobs run by the command and nothing else, and their files are read as they are, so the script survives it when modules
move. Files of tables count byte for byte; JSON and YAML by content, without what names versions, digests of code,
settings or input, or times. Pages and pictures do not count.

Paths enter noise (pseudonyms of masked rounds follow from them), so everything is in one fixed folder under the
system's temporary folder, which is removed before and after: a second run waits for the first, and another temporary
folder gives other digests. The last bits of released numbers may differ between types of CPU and between
versions of NumPy, Arrow and scikit-learn, so no test compares with `tests/data/released_bytes.json`: write a file of
your own before a refactoring, or compare with that one on the kind of machine it names. The noise of `profile` is
PipelineDP's and follows from no key; of that job the guarantee and the shape of its table count.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import pathlib
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.masked.party_state import PartyState
from tests.scenes import federation, lake
from tests.scenes.byte_digests import FOLDER, Digests, digests_of

N_ROWS, CLIENT_ROWS = 360, 10
N_CLIENTS = N_ROWS // CLIENT_ROWS
SECRETS = [bytes(range(start, start + 32)) for start in (11, 61, 111)]
Settings = dict[str, Any]


class Desk:
    """Lakes, keys and finished jobs of one run of the script."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        points, clients = lake.mixture(N_ROWS), np.arange(N_ROWS) // CLIENT_ROWS
        layout: dict[str, Any] = {"n_files": 3, "row_group_size": 60}
        self.lake = lake.write_lake(folder / "lake", points, clients, **layout)
        order = np.random.default_rng(3).permutation(N_ROWS)
        parts = [self._people(points[rows], clients[rows]) for rows in np.array_split(order, 3)]
        self.people = lake.write_files(folder / "people", parts)
        self.server = lake.write_server(folder / "server.parquet")
        pq.write_table(self._people(lake.mixture(60, seed=99), np.arange(60)), folder / "known.parquet")
        self.key = lake.write_key(folder / "key")
        self.secrets = [lake.write_key(folder / f"secret-{number}", key) for number, key in enumerate(SECRETS)]
        self.silos = federation.write_lake(folder / "silos")
        # Rows that models are judged on are no private ones; these are equal to them, so that digests stay.
        self.held_out = federation.write_lake(folder / "held_out", seed=1)

    def _people(self, points: np.ndarray, clients: np.ndarray) -> pa.Table:
        """Rows with columns of other kinds."""
        table = lake.table_of(points, clients)
        words = np.array(["clerk", "smith", "farmer"])[points.argmax(axis=1) % 3]
        return table.append_column("age", pa.array(50.0 + 5.0 * points[:, 0])).append_column("work", pa.array(words))

    def run(self, case: str, job: str, settings: Settings, *words: str) -> pathlib.Path:
        """A job; its output folder, or that of its case where `words` name another place."""
        folder = self.folder / "runs" / case
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / f"{job}.yaml"
        config.write_text(yaml.safe_dump(settings, sort_keys=False))
        named = () if job == "stream" else ("--run_id", "bytes")
        places = words if "--exchange" in words else ("--output", str(folder / job), *named, *words)
        outcome = lake.run_command(job, "--config", str(config), *places)
        if outcome.code:
            raise SystemExit(f"{case}: {outcome.err}")
        return folder / job

    def fit(self, unit: str = "record", **changes: Any) -> Settings:
        """A job of algorithm feddp_kmeans."""
        return lake.job(self.lake, self.server, unit, key_uri=self.key, **changes)

    def released(self, case: str) -> pathlib.Path:
        """The output of a case of `fit`, which runs if it has not."""
        folder = self.folder / "runs" / case / "fit"
        return folder if folder.exists() else self.run(case, "fit", FITS[case.removeprefix("fit/")](self))


def _lloyd(desk: Desk, unit: str = "record", **options: Any) -> Settings:
    """A job of algorithm dp_lloyd; the server start of two of its inits needs public points."""
    by_server = options.get("init") == "feddp_init"
    job = lake.job(desk.lake, desk.server if by_server else None, unit, algorithm="dp_lloyd")
    job |= {"dp_lloyd": {"domain": [-2.0, 7.0]} | options, "clipping": {"client_rows": CLIENT_ROWS}}
    job["data"]["public_rows"] = N_ROWS if unit == "record" else N_CLIENTS
    del job["feddp_kmeans"]
    return job | {"key_uri": desk.key}


def _medians(desk: Desk, unit: str = "record", **options: Any) -> Settings:
    """A job of algorithm dp_medians."""
    return _lloyd(desk, unit, **options) | {"algorithm": "dp_medians"}


def _sphere(desk: Desk, unit: str = "client", **changes: Any) -> Settings:
    """A job of algorithm spherical with names."""
    names = {"column": "work", "words": ["clerk", "farmer"]}
    spherical = {"algorithm": "spherical", "spherical": {"steps": 4}, "names": names, "clipping": {"norm": 7.0}}
    job = lake.job(desk.people, None, unit, privacy__epsilon=8.0, key_uri=desk.key, **spherical | changes)
    job["clipping"]["client_rows"] = CLIENT_ROWS
    return job | {"justification": {"privacy.unit": "rows of one day"}}


def _prototypes(desk: Desk, unit: str = "record") -> Settings:
    """A job of algorithm k_prototypes; a code of its rows is in no list."""
    job = lake.job(desk.people, None, unit, algorithm="k_prototypes", privacy__epsilon=8.0, key_uri=desk.key)
    job["data"]["features"] = ["age", "work"]
    job["clipping"] = {"client_rows": CLIENT_ROWS}
    del job["feddp_kmeans"]
    codes = {"work": {"kind": "one_hot", "vocabulary": ["clerk", "smith"]}}
    return job | {"k_prototypes": {"domain": {"age": [0, 100]}}, "encode": codes}


def _tree(desk: Desk, unit: str = "record", **changes: Any) -> Settings:
    changes = {"algorithm": "central_tree", "tree": {"radius": 7.0}, "key_uri": desk.key} | changes
    job = lake.job(desk.lake, None, unit, privacy__epsilon=8.0, **changes)
    del job["clipping"]["norm"]
    return job


def _pooled(desk: Desk, algorithm: str, **options: Any) -> Settings:
    data = {"path": desk.people, "features": "x", "client_id": "client_id"}
    return {"experimental": True, "algorithm": algorithm, "data": data, "n_clusters": 3} | options


def _masked(desk: Desk, unit: str, **options: Any) -> Settings:
    masked = {"secret_uri": desk.secrets[0]} | options
    return desk.fit(unit, trust="masked", masked=masked, lloyd={"steps": 1})


def _encoded(desk: Desk) -> Settings:
    job = desk.fit("client", lloyd={"steps": 1})
    job["data"] |= {"path": desk.people, "features": ["work", "age"]}
    job["server_data"]["path"] = str(desk.folder / "known.parquet")
    kinds = {"work": {"kind": "one_hot", "vocabulary": "server"}, "age": {"kind": "quantile_bins", "bins": 4}}
    return job | {"encode": kinds}


def _following(desk: Desk, first: str, **recurring: Any) -> Settings:
    previous = {"previous": str(desk.released(f"fit/{first}"))}
    return FITS[first](desk) | {"recurring": previous | recurring}


STEP: Settings = {"lloyd": {"steps": 1}}
FITS: dict[str, Callable[[Desk], Settings]] = {
    "record": lambda desk: desk.fit(**STEP, quality={"share": 0.05}),
    "client": lambda desk: desk.fit("client", **STEP, quality={"share": 0.05, "max_distance": 3.0}),
    "paper-record": lambda desk: desk.fit(**STEP, privacy__allocation="paper"),
    "paper-client": lambda desk: desk.fit("client", lloyd={"steps": 2}, privacy__allocation="paper"),
    "grouped": lambda desk: desk.fit("client", data__path=desk.people, data__max_rows_per_client=7),
    "elbow": lambda desk: desk.fit(n_clusters={"max": 6, "choose": "elbow"}, privacy__epsilon=8.0),
    "private-norm": lambda desk: desk.fit(clipping__norm="private"),
    "private-norm-client": lambda desk: desk.fit("client", clipping__norm="private"),
    "no-server": lambda desk: lake.job(desk.lake, None, key_uri=desk.key, **STEP),
    "encode": _encoded,
    "masked": lambda desk: _masked(desk, "client"),
    "masked-both": lambda desk: _masked(desk, "record", noise_by="both"),
    "masked-pairwise": lambda desk: _masked(desk, "client", scheme="pairwise", threshold=2),
    "dp_lloyd-fast": lambda desk: _lloyd(desk, init="sphere_packing", steps=3),
    "dp_lloyd-best": lambda desk: _lloyd(desk, init="best"),
    "dp_lloyd-best-client": lambda desk: _lloyd(desk, "client", init="best"),
    "dp_lloyd-feddp_init": lambda desk: _lloyd(desk, init="feddp_init", steps=2),
    "dp_lloyd-central_tree": lambda desk: _lloyd(desk, init="central_tree", steps=2),
    "dp_medians": lambda desk: _medians(desk, init="best", steps=3),
    "dp_medians-client": lambda desk: _medians(desk, "client", init="sphere_packing", steps=3),
    "k_prototypes": lambda desk: _prototypes(desk),
    "k_prototypes-client": lambda desk: _prototypes(desk, "client"),
    "spherical": lambda desk: _sphere(desk),
    "spherical-record": lambda desk: _sphere(desk, "record"),
    "tree": lambda desk: _tree(desk, quality={"share": 0.05}),
    "tree-client": lambda desk: _tree(desk, "client", **STEP),
    "tree-elbow": lambda desk: _tree(desk, n_clusters={"max": 6, "choose": "elbow"}),
    "tree-lloyds": lambda desk: _tree(desk, **STEP),
    "warm": lambda desk: _following(desk, "record"),
    "cold": lambda desk: _following(desk, "client", warm_start=False),
    "warm-dp_lloyd": lambda desk: _following(desk, "dp_lloyd-fast"),
    "optimal": lambda desk: _pooled(desk, "optimal"),
}


def fit(desk: Desk, name: str) -> Digests:
    """A case of `FITS`."""
    return digests_of(desk.released(f"fit/{name}"))


def stream(desk: Desk, name: str) -> Digests:
    """Two windows of an epoch, from a start of its own; each draws under a key derived from the kept one."""
    days = desk.folder / "days"
    for date in ("2026-01-01", "2026-01-02"):
        lake.write_lake(days / f"dt={date}", lake.mixture(60, seed=int(date[-1])))
    settings = FITS["dp_lloyd-fast"](desk)
    settings["data"] = {"path": str(days), "features": "x", "name": "days"}
    return _stream(desk, name, "dp_lloyd-fast", settings, {"once": "made for tests"})


def client_stream(desk: Desk, name: str) -> Digests:
    """Like `stream`, with clients that have rows in both windows and count in one of them."""
    days, clients = desk.folder / "days-of-clients", np.arange(60) // 2
    for day, date in enumerate(("2026-01-01", "2026-01-02")):
        lake.write_lake(days / f"dt={date}", lake.mixture(60, seed=day), clients + 15 * day)
    settings = FITS["dp_lloyd-best-client"](desk)
    settings["data"] = {"path": str(days), "features": "x", "client_id": "client_id", "name": "days"}
    return _stream(desk, name, "dp_lloyd-best-client", settings, {"max_windows": 1, "min_separation": 2})


def _stream(desk: Desk, name: str, start: str, settings: Settings, contract: Settings) -> Digests:
    """An epoch with a new ledger, and client lists of its own."""
    ledger = (desk.folder / name.replace("stream", "days")).with_suffix(".sqlite")
    ledger.unlink(missing_ok=True)
    shutil.rmtree(f"{ledger}.rolls", ignore_errors=True)
    Ledger(str(ledger)).set_limit("days", Limit(epsilon=9.0, delta=1e-5))
    calendar = {"column": "dt", "first": "2026-01-01", "windows": 2, "memory": 2} | contract
    calendar |= {"start": str(desk.released(f"fit/{start}")), "name": "days"}
    settings |= {"ledger": str(ledger), "stream": calendar}
    with lake.keys_of_runs():
        return digests_of(desk.run(name, "stream", settings, "--catch_up", "2026-01-02"))


def prepare(desk: Desk, name: str) -> Digests:
    """Rows by client."""
    data = {"path": desk.people, "features": "x", "client_id": "client_id", "max_rows_per_client": 8}
    return digests_of(desk.run("prepare", "prepare", {"data": data, "prepare": {"shards": 2}}))


def model_job(desk: Desk, name: str) -> Digests:
    """A job on the first model."""
    job, unit = name.split("-")
    data = {"path": desk.people, "features": "x", "client_id": "client_id"}
    settings: Settings = {"model": str(desk.released("fit/record")), "data": data}
    if job == "assign":
        settings["assign"] = {"id_columns": ["age", "work"]} if unit == "ids" else {}
    if job == "evaluate":
        several = {"label": "work", "reference": settings["model"]} if unit == "label" else {}
        settings["evaluate"] = {"silhouette_rows": N_ROWS} | several
    return digests_of(desk.run(name, job, settings))


def profile(desk: Desk, name: str) -> Digests:
    """The guarantee of a profile, and the columns of its table: its noise cannot be repeated."""
    unit = name.removeprefix("profile-")
    settings: Settings = {
        "model": str(desk.released("fit/record")),
        "data": {"path": desk.people, "features": "x", "client_id": "client_id"},
        "privacy": {"unit": unit, "epsilon": 50.0, "delta": 1e-6},
        "profile": {
            "numeric": {"age": {"lower": 0, "upper": 100, "percentiles": [50]}},
            "categorical": {"work": {"values": ["clerk", "smith"]}},
        }
        | ({"max_rows_per_client": CLIENT_ROWS} if unit == "client" else {}),
    }
    folder = desk.run(name, "profile", settings)
    table = pq.read_table(folder / "profile.parquet")
    found = {name: digest for name, digest in digests_of(folder).items() if name.endswith((".json", ".yaml"))}
    shape = f"{table.schema.remove_metadata()}\n{table.num_rows}"
    return found | {"profile.parquet, its shape": hashlib.sha256(shape.encode()).hexdigest()}


def sweep(desk: Desk, name: str) -> Digests:
    """Methods with and without privacy at two epsilons."""
    methods = {
        "rows": {"algorithm": "feddp_kmeans"},
        "clients": {"algorithm": "feddp_kmeans", "privacy": {"unit": "client"}},
        "optimum": {"algorithm": "optimal"},
    }
    settings = lake.job(desk.people, desk.server, "client")
    del settings["algorithm"], settings["privacy"]["unit"], settings["privacy"]["epsilon"]
    settings["privacy"]["unit"] = "record"
    settings["sweep"] = {"methods": methods, "epsilons": [2.0, 4.0], "seeds": 2}
    return digests_of(desk.run("sweep", "sweep", settings))


REPORTS: dict[str, Settings] = {
    "leaves": {"reports": {"variant": "leaves"}},
    "nested": {},
    "points": {"reports": {"variant": "points"}},
    "privunit": {"reports": {"variant": "privunit"}},
    "paper": {"reports": {"variant": "paper"}},
    "shuffled": {"privacy": {"epsilon": 1.0, "delta": 1e-4}, "reports": {"mode": "shuffle"}},
}


def reports(desk: Desk, name: str) -> Digests:
    """Encode, shuffle what was written as if it had arrived, decode."""
    case, more = f"reports/{name}", REPORTS[name]
    n_clients = 1500 if name == "shuffled" else 300
    path = desk.folder / f"devices-{n_clients}"
    if not path.exists():
        lake.write_lake(path, lake.mixture(n_clients), np.arange(n_clients), n_files=2)
    base: Settings = {"unit": "client", "epsilon": 4.0}
    settings = {
        "experimental": True,
        "data": {"path": str(path), "features": "x", "client_id": "client_id"},
        "n_clusters": 3,
        "privacy": base | more.get("privacy", {}),
        "tree": {"radius": 10.0} | more.get("tree", {}),
        "reports": {"min_batch": n_clients} | more.get("reports", {}),
        "key_uri": desk.key,
    }
    encoded = desk.run(case, "encode", settings)
    folder = desk.folder / "runs" / case
    places = {"arrived": str(_as_sent(encoded, name)), "parameters": str(encoded / "parameters.json")}
    job = {"reports": places | {"path": str(folder / "shuffle")}}
    for step in ("shuffle", "decode"):
        desk.run(case, step, job)
    found = {step: digests_of(folder / step) for step in ("encode", "shuffle", "decode")}
    return {f"{step}/{file}": digest for step, files in found.items() for file, digest in files.items()}


def _as_sent(encoded: pathlib.Path, name: str) -> pathlib.Path:
    """Simulated reports as devices send them: with the digest of the parameters where someone shuffles them."""
    simulated = encoded / "reports.parquet"
    if name != "shuffled":
        return simulated
    table, folder = pq.read_table(simulated), encoded / "arrived"
    folder.mkdir()
    sent = hashlib.sha256((encoded / "parameters.json").read_bytes()).digest()
    column = pa.array([sent] * len(table), pa.binary(len(sent)))
    pq.write_table(table.append_column("parameters", column), folder / "part-0.parquet")
    return folder


FEDERATIONS: dict[str, Settings] = {
    "r_dpcfl": {},
    "mlp": {"training__model": "mlp", "training__hidden_units": 4},
    "replace_one": {"privacy__adjacency": "replace_one"},
    "searched": {"n_clusters": {"max": 3, "choose": "mss"}},
}


def clustered_fl(desk: Desk, name: str) -> Digests:
    """Models of silos."""
    changes = {"key_uri": desk.key, "evaluation": {"path": desk.held_out}, "training__rounds": 3} | FEDERATIONS[name]
    settings = federation.job(desk.silos, **changes)
    return digests_of(desk.run(f"clustered_fl/{name}", "clustered_fl", settings))


def masked_jobs(desk: Desk, name: str) -> Digests:
    """Uploads of three clients, aggregates and unmaskings until the result is there."""
    case, pairwise, unit = f"masked_jobs/{name}", name.startswith("pairwise"), name.rpartition("-")[2]
    algorithm: Settings = {} if unit == "record" else lake.packed(2)
    folder = desk.folder / "runs" / case
    between = ("--exchange", str(folder / "exchange"))
    ours = (*between, "--released", str(folder / "released"))
    jobs = []
    (folder / "secrets").mkdir(parents=True)
    # The state of a party knows the nonce, which is that of every case here: so each case has a state of its own.
    secrets = [lake.write_key(folder / "secrets" / str(number), key) for number, key in enumerate(SECRETS)]
    for client, secret in enumerate(secrets):
        path = folder / f"rows-{client}"
        lake.write_lake(path, lake.mixture(48, seed=client), np.arange(48) // 12, row_group_size=12)
        options: Settings = {"secret_uri": secret if pairwise else secrets[0], "state_uri": str(folder / "state")}
        options |= {"scheme": "pairwise", "threshold": 2} if pairwise else {}
        jobs.append(lake.job(str(path), desk.server, unit, trust="masked", masked=options, **algorithm))
        PartyState.enroll(options["state_uri"], options["secret_uri"], f"client-{client}")
    PartyState.enroll(str(folder / "state"), secrets[0], "")
    desk.run(case, "unmask", jobs[0], *ours, "--run_id", "bytes")
    desk.run(case, "aggregate", {"key_uri": desk.key, "threshold": 2}, *between)
    while not (folder / "released" / "result").exists():
        for leg in range(4 if pairwise else 1):
            for client, job in enumerate(jobs):
                desk.run(case, "upload", job, *ours, "--client", f"client-{client}")
            if leg < 3:
                desk.run(case, "aggregate", {"key_uri": desk.key, "threshold": 2}, *between)
        desk.run(case, "unmask", jobs[0], *ours, "--run_id", "bytes")
    found = {place: digests_of(folder / place) for place in ("exchange", "released")}
    return {f"{place}/{file}": digest for place, files in found.items() for file, digest in files.items()}


CASES: dict[str, tuple[Callable[[Desk, str], Digests], str]] = {
    **{f"fit/{name}": (fit, name) for name in FITS},
    "stream": (stream, "stream"),
    "stream-client": (client_stream, "stream-client"),
    "prepare": (prepare, "prepare"),
    **{name: (model_job, name) for name in ("assign-ids", "assign-plain", "evaluate-label", "evaluate-plain")},
    **{name: (profile, name) for name in ("profile-record", "profile-client")},
    "sweep": (sweep, "sweep"),
    **{f"reports/{name}": (reports, name) for name in REPORTS},
    **{f"clustered_fl/{name}": (clustered_fl, name) for name in FEDERATIONS},
    **{f"masked_jobs/{name}": (masked_jobs, name) for name in ("shared-record", "shared-client", "pairwise-client")},
}
"""Every job under a name, and what runs it."""


@contextlib.contextmanager
def _same_tokens() -> Iterator[None]:
    """Keys that a job makes itself are the same in every run."""
    with mock.patch("secrets.token_bytes", side_effect=lambda size=32: (lake.KEY * 8)[:size]):
        yield


@contextlib.contextmanager
def _working_folder() -> Iterator[pathlib.Path]:
    """The fixed folder, new, for its owner only."""
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(mode=0o700)
        try:
            yield FOLDER
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)


def run_cases(only: str = "") -> dict[str, Digests]:
    """Digests of every case whose name starts with `only`."""
    with _working_folder() as folder, _same_tokens(), lake.written_keys_draw():
        desk, digests = Desk(folder), {}
        for case, (run, name) in CASES.items():
            if case.startswith(only):
                digests[case] = run(desk, name)
                sys.stderr.write(f"{case}: {len(digests[case])} files\n")
    return digests


def differences(before: dict[str, Digests], after: dict[str, Digests]) -> list[str]:
    """Files that are not the same, by case."""
    paths = sorted({(case, file) for each in (before, after) for case, files in each.items() for file in files})
    return [
        f"{case}: {file}" for case, file in paths if before.get(case, {}).get(file) != after.get(case, {}).get(file)
    ]


def about() -> dict[str, str]:
    """The kind of machine that made the digests."""
    names = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    numbers = {"python": platform.python_version(), "numpy": np.__version__, "pyarrow": pa.__version__}
    note = "made by tests/released_bytes.py; the last bits depend on the kind of CPU and on versions of libraries"
    return {"note": note, "cpu": names[0].partition(": ")[2], "folder": str(FOLDER), **numbers}


def main() -> int:
    """Runs, and writes or compares."""
    parser = argparse.ArgumentParser(description="Digests of what small runs of every job release.")
    parser.add_argument("--write", type=pathlib.Path, help="the file to write")
    parser.add_argument("--check", type=pathlib.Path, help="the file to compare with")
    parser.add_argument("--only", default="", help="how the names of cases start")
    options = parser.parse_args()
    digests = run_cases(options.only)
    text = json.dumps({"about": about(), "digests": digests}, indent=1) + "\n"
    if options.write is not None:
        options.write.write_text(text)
    if options.check is not None:
        known = json.loads(options.check.read_text())["digests"]
        wrong = differences({case: files for case, files in known.items() if case.startswith(options.only)}, digests)
        sys.stdout.writelines(f"{line}\n" for line in wrong or ["the same"])
        return int(bool(wrong))
    if options.write is None:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
