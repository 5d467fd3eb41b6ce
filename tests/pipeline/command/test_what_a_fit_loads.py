"""A plain `dapple fit` loads no module of an optional feature that its job does not have."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
JOB = """\
algorithm: dp_lloyd
data: {path: rows.csv, features: [a, b]}
n_clusters: 2
privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}
clipping: {norm: domain, center: none}
dp_lloyd: {domain: [0, 100]}
"""
OPTIONAL = (
    *("transforms.masked", "transforms.numerics.masked", "pipelines.masked", "schemas.masked.coalitions"),
    *("pipelines.ledger.store", "pipelines.ledger.command_line", "transforms.privacy.ledger_filter"),
    *("pipelines.kmeans.account", "pipelines.kmeans.plan.previous_run", "pipelines.kmeans.plan.recurrence"),
    *(
        "pipelines.kmeans.plan.simulated_shares",
        "transforms.kmeans.simulated_fit",
        "transforms.numerics.kmeans.recurring",
    ),
    *("pipelines.tables.prepare", "pipelines.tables.epoch_roll", "transforms.tables.snapshots"),
    *("transforms.tables.counted_clients", "pipelines.jobs.lineage", "pipelines.run.on_flink", "pipelines.plan"),
    *("pipelines.profile", "schemas.profile", "schemas.reports", "schemas.clustered_fl", "schemas.trusted_zone"),
    *(f"transforms.kmeans.{each}" for each in ("central_tree", "dp_medians", "feddp_kmeans", "spherical", "windows")),
    *(f"schemas.kmeans.{each}_config" for each in ("pooled", "spherical", "tree", "windows")),
)
MOST_MODULES = 245
SCRIPT = """\
import atexit, sys
sys.path.insert(0, sys.argv.pop(1))
atexit.register(lambda: print(*sorted(n for n in sys.modules if n.startswith("dapple_dp.")), file=open("loaded", "w")))
from dapple_dp.pipelines.command import main
sys.exit(main.main(["fit", "--config", "job.yaml", "--output", "result"]))
"""


def test_a_plain_fit_loads_no_optional_feature(tmp_path):
    rows = (f"{20 + 60 * (i % 2) + i % 7},{30 + i % 11}\n" for i in range(2000))
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(rows))
    (tmp_path / "job.yaml").write_text(JOB)
    subprocess.run([sys.executable, "-c", SCRIPT, str(ROOT)], cwd=tmp_path, check=True)
    loaded = [name.removeprefix("dapple_dp.") for name in (tmp_path / "loaded").read_text().split()]
    beside = {f"{name}." for name in OPTIONAL}
    assert [name for name in loaded if any(f"{name}.".startswith(each) for each in beside)] == []
    assert 100 < len(loaded) <= MOST_MODULES
