"""`python -m examples.flower`: three hospitals and an aggregator by Flower's simulation, in `out/flower`.

Every step of the protocol is a job of Dapple, as a process of its own. Flower carries the files. Without the packages
of `flwr[simulation]` this says so and returns 3.
"""

import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "out" / "flower"


def simulate(folder: pathlib.Path) -> None:
    """Writes a federation to a new folder and runs it."""
    from examples.flower import federation

    federation.write(folder)
    os.environ |= {
        "DAPPLE_FEDERATION": str(folder),
        "DAPPLE": os.environ.get("DAPPLE", f"{sys.executable} -m pipelines"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    sys.path.insert(0, str(HERE))
    from dapple_flower.client_app import app as client
    from dapple_flower.server_app import app as server
    from flwr.simulation import run_simulation

    cores = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, num_supernodes=len(federation.HOSPITALS), backend_config=cores)


def main() -> int:
    """Runs the example in a new folder."""
    import pyarrow.parquet as pq

    shutil.rmtree(OUTPUT, ignore_errors=True)
    try:
        import flwr  # noqa: F401 - whether it is there
        import ray  # noqa: F401
    except ModuleNotFoundError as error:
        print(f"examples.flower: pip install 'flwr[simulation]' first; {error}", file=sys.stderr)
        return 3
    simulate(OUTPUT)
    results = sorted((OUTPUT / "clients").glob("*/released/result/centers.parquet"))
    print(pq.read_table(results[0])["center"].to_pylist() if results else "no result")
    return 0 if len({path.read_bytes() for path in results}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
