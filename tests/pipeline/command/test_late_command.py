"""A fit by the command runs without the libraries that it does not use, and releases what a fit in Python releases."""

import os
import subprocess
import sys

import yaml

from tests.scenes import lake

SCRIPT = """
import sys
from dapple_dp.command import main
code = main()
from pipelines.run.late_imports import LATE, LateModule
ran = {name for name in LATE if type(sys.modules.get(name, LateModule(name))) is not LateModule}
# Accountants are imported where no plan is kept.
ran -= {"scipy.special", "scipy.stats"} if "dp_accounting" in sys.modules else set()
sys.exit(f"these ran: {sorted(ran)}" if code == 0 and ran else code)
"""


def test_a_fit_of_the_command_runs_without_what_it_does_not_use(tmp_path):
    """Space and clusters are found by scikit-learn; laws, plots and stores of others are not asked for."""
    server = lake.write_server(tmp_path / "server.parquet")
    settings = lake.job(lake.write_lake(tmp_path / "lake", lake.mixture(400)), server, feddp_kmeans__space="auto")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
    words = ["fit", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "report.html" in os.listdir(tmp_path / "out")
