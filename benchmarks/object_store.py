"""What a fit of many small objects on a store costs: CPU seconds of the job alone, and requests per object.

The store is moto's server, in a process of its own on loopback. The job is the command, with a ledger, as a user would
start it; nothing is patched. With `--delay` the store waits before each answer, as one that is far away.

    python -m benchmarks.object_store --objects 30 300 --out benchmarks/results/object_store.md
    python -m benchmarks.object_store --objects 1000 --delay 30 --out benchmarks/results/object_store_far.md
"""

import collections
import concurrent.futures
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks import measurement
from benchmarks.machine import heading

BUCKET = "lake"
N_ROWS, N_FEATURES, N_CLUSTERS = 20, 8, 5
KINDS = ("HEAD", "GET", "LIST", "other")
TABLE = (
    "| objects | wall s | CPU s | requests per object | HEAD | GET | lists | other requests |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)
_COUNTS = "/counts"


class Counted:
    """A store whose requests are counted by what they are about and by kind; asked for the counts, it forgets them.

    Args:
      app: the store.
      delay: seconds before each answer.
    """

    def __init__(self, app: Callable[..., Any], delay: float):
        self._app = app
        self._delay = delay
        self._counts: collections.Counter[str] = collections.Counter()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """One request."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == _COUNTS:
            found, self._counts = json.dumps(self._counts).encode(), collections.Counter()
            start_response("200 OK", [("Content-Length", str(len(found)))])
            return [found]
        listing = "list-type" in environ["QUERY_STRING"]
        kind = "LIST" if listing else method if method in KINDS else "other"
        rows = listing or path.startswith(f"/{BUCKET}/rows/")
        self._counts[f"{'rows' if rows else 'rest'} {kind}"] += 1
        time.sleep(self._delay)
        return self._app(environ, start_response)


def serve(delay: float) -> None:
    """Runs the store until this process ends, and prints its address first; it waits this many seconds each time."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    app = Counted(DomainDispatcherApplication(create_backend_app), delay)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def store_of(endpoint: str) -> dict[str, str]:
    """The environment in which libraries find the store."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def upload(endpoint: str, folder: str, n_objects: int) -> str:
    """Writes objects of a few rows; returns where they are."""
    import boto3

    rng, means = np.random.default_rng(0), np.random.default_rng(1).uniform(-0.8, 0.8, (N_CLUSTERS, N_FEATURES))
    store = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    if folder == "rows/0":
        store.create_bucket(Bucket=BUCKET)

    def put(index: int, content: bytes) -> None:
        store.put_object(Bucket=BUCKET, Key=f"{folder}/part-{index:05d}.parquet", Body=content)

    contents = []
    for _ in range(n_objects):
        points = means[rng.integers(N_CLUSTERS, size=N_ROWS)] + rng.normal(0.0, 0.05, (N_ROWS, N_FEATURES))
        table = pa.table({f"x{place}": column for place, column in enumerate(points.clip(-1, 1).T)})
        content = io.BytesIO()
        pq.write_table(table, content)
        contents.append(content.getvalue())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(put, itertools.count(), contents))
    return f"s3://{BUCKET}/{folder}"


def run(job: Mapping[str, Any], place: Path, flags: list[str]) -> measurement.Figures:
    """Wall and CPU seconds of the command, and of whatever it has started and waited for."""
    (place / "job.yaml").write_text(yaml.safe_dump(dict(job)))
    words = ["fit", "--config", str(place / "job.yaml"), "--output", str(place / "out"), *flags]
    limit = ["limit", "--ledger", job["ledger"], "--dataset", "rows", "--epsilon", "2", "--delta", "1e-6"]
    subprocess.run([sys.executable, "-m", "pipelines", "ledger", *limit], check=True, stdout=subprocess.DEVNULL)
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "pipelines", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the fit ended with {os.waitstatus_to_exitcode(status)}")
    return {"wall": time.perf_counter() - start, "cpu": used.ru_utime + used.ru_stime}


def measured(endpoint: str, number: int, n_objects: int, flags: list[str]) -> measurement.Figures:
    """A fit of this many objects: its seconds, and its requests."""
    with tempfile.TemporaryDirectory() as place:
        job = {
            "algorithm": "dp_lloyd",
            "data": {
                "path": upload(endpoint, f"rows/{number}", n_objects),
                "features": [f"x{index}" for index in range(N_FEATURES)],
                "name": "rows",
            },
            "n_clusters": N_CLUSTERS,
            "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-7},
            "dp_lloyd": {"domain": [-1.0, 1.0]},
            "ledger": f"{place}/ledger.sqlite",
        }
        counts(endpoint)
        return {**run(job, Path(place), flags), **counts(endpoint)}


def counts(endpoint: str) -> dict[str, float]:
    """Requests since the last time."""
    with urllib.request.urlopen(endpoint + _COUNTS) as found:
        return json.loads(found.read())


def row(n_objects: int, found: measurement.Figures) -> str:
    """A line of the table."""
    each = [found.get(f"rows {kind}", 0) / n_objects for kind in ("HEAD", "GET")]
    rest = sum(found.get(f"rest {kind}", 0) for kind in KINDS)
    return (
        f"| {n_objects} | {found['wall']:.1f} | {found['cpu']:.1f} | {sum(each):.1f} | {each[0]:.1f} | {each[1]:.1f} "
        f"| {found.get('rows LIST', 0):.0f} | {rest:.0f} |"
    )


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--objects", type=int, nargs="+", default=[300])
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds before each answer of the store")
    parser.add_argument("--flags", nargs="*", default=[], help="of Beam's runner, without the two dashes")
    words = parser.parse_args()
    lines = [
        *heading("Many small objects on a store"),
        f"Fits by `dp_lloyd` of objects of {N_ROWS} rows of {N_FEATURES} features, with a ledger; the store is moto's "
        f"server in a process of its own on loopback, which waits {words.delay:g} ms before each answer. CPU seconds "
        "are those of the job alone. Requests of an object are those of the whole job; lists and requests of other "
        "objects are those of the job. Where other processes share the machine, wall seconds are upper bounds.",
        "",
        *TABLE,
    ]
    command = [sys.executable, "-c", f"from {__spec__.name} import serve; serve({words.delay / 1000})"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            endpoint = server.stdout.readline().strip()  # type: ignore[union-attr]
            os.environ.update(store_of(endpoint))
            for number, n_objects in zip(itertools.count(), words.objects, strict=False):
                found = measured(endpoint, number, n_objects, [f"--{each}" for each in words.flags])
                lines.append(row(n_objects, found))
        finally:
            server.kill()
    measurement.show(lines, words.out)


if __name__ == "__main__":
    main()
