"""An algorithm whose noise of centers is unknown says so: in its file, its page and its plan, and claims nothing."""

import numpy as np
import pytest

from benchmarks.coverage_kinds import CLIENT_ROWS, Job, key_of, mixture, settings
from dapple_dp.pipelines.kmeans.report import assumptions, clusters, report_warnings
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.transforms.kmeans.protocols import protocol_of

N_CLIENTS = 150
CLIENTS = {
    "privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6},
    "data": {"path": "none", "features": [f"x{index}" for index in range(6)], "client_id": "client"},
    "clipping": {"client_rows": CLIENT_ROWS},
}


@pytest.fixture(scope="module", params=["record", "client"])
def view(request):
    """Clusters that are clear, and so say much if noise counts as none."""
    job = Job.of(settings("dp_medians", **(CLIENTS if request.param == "client" else {})))
    rows = mixture(3, N_CLIENTS * CLIENT_ROWS)
    offsets = np.arange(N_CLIENTS + 1) * CLIENT_ROWS if request.param == "client" else None
    return job.view(job.run(ClientBlock(rows, offsets), key_of("unknown", request.param))[1])


def test_the_file_says_nan_and_keeps_the_noise_of_sizes(view):
    model = view.result.model
    assert np.isnan(model.center_stddevs).all()
    assert np.isfinite(model.size_stddevs).all()
    read = model_from_tables(model.centers_table(), releases_to_table(model.releases))
    assert np.isnan(read.center_stddevs).all()


def test_the_page_states_no_interval_of_a_center(view):
    reason = protocol_of(view.planned.config.algorithm).unknown_noise
    assert reason
    section = clusters.clusters_section(view)
    sizes, numbers = section.blocks[-2:]
    assert reason in numbers.note
    assert "19 of 20" not in numbers.note
    assert {row[-1] for row in numbers.rows} == {"unknown"}
    assert reason in sizes.note
    assert "stands out by" not in sizes.columns
    assert all(len(row) == len(sizes.columns) for row in sizes.rows)
    assert "19 of 20" in section.lead  # Of sizes, whose noise is that of one release.


def test_nothing_is_named_or_judged_by_noise_that_is_unknown(view):
    assert not any(view.summary.outstanding(index, 3) for index in range(view.summary.n_clusters))
    assert len(view.summary.largest_of(0, slice(0, 6))) == 6
    assert clusters.noise_texts(view, np.arange(6), np.arange(4)) == ["unknown"] * 6
    assert assumptions.of_clouds(view) is None
    assert "the noise of its centers is unknown" in assumptions.of_unknown_spread(view)[0].text
    found = {name: each for name, each in report_warnings.run_checks(view)}
    assert found["More clusters than one cloud would show"] is None
    assert found["Private rows inside the ranges of the columns"] is None
