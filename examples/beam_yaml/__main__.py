"""`python -m examples.beam_yaml`: the pipelines of this folder on made-up rows, in `out/beam_yaml`.

Beam YAML needs the packages of `apache-beam[yaml]`; without them this says so and returns 3.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "out" / "beam_yaml"
PIPELINES = ("fit", "assign", "reports")
MEANS = 5.0 * np.eye(3, 4)


def rows(n_rows: int, seed: int) -> pa.Table:
    """Made-up rows around three means, one per client."""
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, 4))
    points = dict(zip("abcd", (MEANS[np.arange(n_rows) % 3] + noise).T, strict=True))
    return pa.table(points | {"client": np.arange(n_rows)})


def run(folder: pathlib.Path) -> None:
    """Runs the pipelines one after the other; the folder is new."""
    from apache_beam.yaml import main as beam_yaml

    (folder / "trusted").mkdir(parents=True, mode=0o700)
    pq.write_table(rows(3000, 0), folder / "rows.parquet")
    pq.write_table(rows(90, 99), folder / "server.parquet")
    variables = json.dumps({"FOLDER": str(folder)})
    for name in PIPELINES:
        path = HERE / f"{name}.yaml"
        beam_yaml.run([f"--yaml_pipeline_file={path}", f"--jinja_variables={variables}", "--runner=FnApiRunner"])


def main() -> int:
    """Runs the example in a new folder."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    try:
        run(OUTPUT)
    except ModuleNotFoundError as error:
        print(f"examples.beam_yaml: pip install 'apache-beam[yaml]' first; {error}", file=sys.stderr)
        return 3
    print(pq.read_table(next(OUTPUT.glob("centers*"))).to_pandas().to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
