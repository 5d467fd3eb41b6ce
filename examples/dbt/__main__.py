"""`python -m examples.dbt`: a model of dbt whose post-hook clusters its rows privately, in `out/dbt`.

dbt and Dapple may have an environment each: the variable DAPPLE names the command. Without the packages of `dbt-duckdb`
this says so and returns 3.
"""

import importlib
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "out" / "dbt"
JOB = """algorithm: dp_lloyd
data: {path: FOLDER/rows.parquet, features: [age, hours], name: visits}
n_clusters: 3
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
dp_lloyd: {domain: [0.0, 100.0]}
"""


def build(folder: pathlib.Path, run_id: str) -> bool:
    """Builds both models; whether dbt says that it has. The folder holds warehouse, rows and result."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(JOB.replace("FOLDER", str(folder)))
    return dbt(folder, "build", "--vars", f"{{run_id: '{run_id}'}}")


def dbt(folder: pathlib.Path, *words: str) -> bool:
    """A command of dbt; whether it succeeds."""
    from dbt.cli.main import dbtRunner

    os.environ |= {
        "DAPPLE_DBT": str(folder),
        "DAPPLE_DBT_PROJECT": str(HERE),
        "DAPPLE": os.environ.get("DAPPLE", f"{sys.executable} -m pipelines"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    places = ["--project-dir", str(HERE), "--profiles-dir", str(HERE)]
    places += ["--log-path", str(folder / "logs"), "--target-path", str(folder / "target")]
    return dbtRunner().invoke([*words, *places]).success


def main() -> int:
    """Runs the example in a new folder."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    try:
        importlib.import_module("dbt.adapters.duckdb")
    except ModuleNotFoundError as error:
        print(f"examples.dbt: pip install dbt-duckdb numpy first; {error}", file=sys.stderr)
        return 3
    variables = ("--vars", "{run_id: '2026-11-20'}")
    return 0 if build(OUTPUT, "2026-11-20") and dbt(OUTPUT, "show", "--select", "centers", *variables) else 1


if __name__ == "__main__":
    sys.exit(main())
