"""Sixty-four hospitals in one run: it ends, and what it takes stays within bounds that the test prints.

python -m pytest tests/pipeline/masked/test_many_parties.py -m nightly -s
"""

import resource
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.transforms.files.file_bytes import read_bytes
from tests.scenes import lake
from tests.scenes.separate_parties import SeparateParties

pytestmark = pytest.mark.nightly
N_HOSPITALS = 64
MASKED = {
    "scheme": "pairwise",
    "one_message": True,
    "noise_by": "clients",
    "corrupt": 0.25,
    "dropout": 0.25,
    "threshold": 48,
}
SETTINGS = {
    "privacy": {"unit": "client", "epsilon": 2.0, "delta": 1e-6},
    "clipping": {"client_rows": 3},
    "dp_lloyd": {"domain": [-2.0, 7.0], "init": "sphere_packing", "steps": 1},
}
TURN = ("--poll_seconds", "0.01", "--wait_minutes", "0", "--late_minutes", "600")


def test_sixty_four_hospitals_end_with_one_result(tmp_path):
    """Each has 20 patients of three visits, and sends one message; parties are called in turn, in this process."""
    hospitals = [f"hospital-{number:02d}" for number in range(N_HOSPITALS)]
    parties = SeparateParties(tmp_path, hospitals, masked=MASKED, n_rows=60, sender_rows=3, **SETTINGS)
    began, calls, going = time.process_time(), 0, list(parties.names)
    while going:
        for name in list(going):
            outcome = lake.run_command(*parties.words(name, *TURN))
            assert outcome.code in (0, 6), (name, outcome.err)
            calls += 1
            if outcome.code == 0:
                going.remove(name)
    seconds, sizes = time.process_time() - began, parties.sizes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = f"{calls} calls, {seconds / 60:.1f} CPU minutes, {len(sizes)} files, {sum(sizes):,} bytes, {peak:.0f} MiB"
    sys.stdout.write(f"{figures}\n")
    (path,) = (tmp_path / "exchange").glob("*/sum.parquet")
    assert len(pq.read_table(pa.BufferReader(path.read_bytes()[:-64]))["senders"][0]) == N_HOSPITALS
    assert len(pq.read_table(pa.BufferReader(read_bytes(f"{parties.released}/result/centers.parquet")))) == 3
    # Keys, letters, a message, a countersignature, shares; the lists and the sum; the releases and the result.
    assert len(sizes) <= 6 * N_HOSPITALS + 40
    assert sum(sizes) <= 64 * (1 << 20)
    assert peak < 2048
