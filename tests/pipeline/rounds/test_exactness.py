"""Under one key a run releases the same bytes, however the rows are spread over files and whichever workers read."""

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.report import report_page as report
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Mechanism
from tests.scenes import lake

N_ROWS, CLIENT_ROWS = 360, 10
IN_PROCESS = [("record", "tuned"), ("client", "paper")]
IN_PROCESSES = [("record", "paper"), ("client", "tuned")]
CASES = IN_PROCESS + IN_PROCESSES
THREADS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
LAYOUTS = {
    "one_group": {},
    "shuffled": {"n_files": 4, "row_group_size": 30, "shuffle": 1},
    "small_groups": {"n_files": 3, "row_group_size": 10, "shuffle": 2},
    "uneven": {"n_files": 5, "row_group_size": 50, "shuffle": 3},
}


class Desk:
    """One lake in several layouts, and what its runs released."""

    def __init__(self, folder):
        self.folder = folder
        self.points = lake.mixture(N_ROWS)
        self.clients = np.arange(N_ROWS) // CLIENT_ROWS
        self.server = lake.write_server(folder / "server.parquet")
        self.key_uri = lake.write_key(folder / "key")
        self.paths = {
            name: lake.write_lake(folder / name, self.points, self.clients, **layout)
            for name, layout in LAYOUTS.items()
        }
        self._results, self._runs = {}, 0

    def settings(self, case, layout):
        unit, allocation = case
        changes = {"privacy__allocation": allocation, "lloyd": {"steps": 1}, "quality": {}, "key_uri": self.key_uri}
        return lake.job(self.paths[layout], self.server, unit, **changes)

    def run(self, case, layout, *flags):
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        result = lake.run_fit(self.settings(case, layout), folder, *flags)
        return result, lake.released(folder)

    def reference(self, case):
        if case not in self._results:
            self._results[case] = self.run(case, "one_group")
        return self._results[case]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("exactness"))


def block_of(case, points):
    """The rows as one block; the last client may have fewer."""
    offsets = np.append(np.arange(0, len(points), CLIENT_ROWS), len(points))
    return ClientBlock(points, offsets if case[0] == "client" else None)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_run_equals_the_chain_of_its_rounds(desk, case):
    result, _ = desk.reference(case)
    model = lake.chain(lake.planned(desk.settings(case, "one_group")), block_of(case, desk.points)).model()
    assert [each.path for each in result.model.releases] == [each.path for each in model.releases]
    for found, expected in zip(result.model.releases, model.releases, strict=True):
        np.testing.assert_array_equal(found.values, expected.values)
        assert found.lattice_unit == expected.lattice_unit
    np.testing.assert_array_equal(result.model.centers, model.centers)
    np.testing.assert_array_equal(result.model.noisy_sizes, model.noisy_sizes)
    assert result.model.noisy_cost == model.noisy_cost


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_cases_are_different(desk, case):
    model = desk.reference(case)[0].model
    rounds = {each.path.split("/")[1] for each in model.releases}
    assert rounds == {"outer_product", "weights", "centers", "lloyd_00", "quality"}
    mechanisms = {each.plan.spec.mechanism for each in model.releases}
    assert (Mechanism.DISCRETE_LAPLACE in mechanisms) is (case[1] == "paper")
    assert len({desk.reference(other)[1]["releases.parquet"] for other in CASES}) == len(CASES)


@pytest.mark.parametrize("case", IN_PROCESS, ids="-".join)
def test_layout_does_not_matter(desk, case):
    assert desk.run(case, "shuffled")[1] == desk.reference(case)[1]


@pytest.mark.parametrize("case", IN_PROCESSES, ids="-".join)
def test_two_threads_release_what_one_does(desk, case):
    layout = "small_groups" if case[1] == "tuned" else "uneven"
    assert desk.run(case, layout, *THREADS)[1] == desk.reference(case)[1]


@pytest.mark.slow
@pytest.mark.parametrize("case", IN_PROCESSES, ids="-".join)
def test_two_processes_release_what_one_does(desk, case):
    assert desk.run(case, "shuffled", *PROCESSES)[1] == desk.reference(case)[1]


def test_a_row_group_of_many_batches(desk, tmp_path):
    points = lake.mixture(20_000, seed=4)
    settings = desk.settings(("record", "tuned"), "one_group")
    settings["data"]["path"] = lake.write_files(tmp_path / "long", [lake.table_of(points)])
    model = lake.chain(lake.planned(settings), ClientBlock(points)).model()
    np.testing.assert_array_equal(lake.run_fit(settings, tmp_path / "run").model.centers, model.centers)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_one_row_less_is_seen(desk, case):
    """The comparisons are not blind: the same job without its last row releases other numbers throughout."""
    block = block_of(case, desk.points[:-1])
    model = lake.chain(lake.planned(desk.settings(case, "one_group")), block).model()
    for found, expected in zip(model.releases, desk.reference(case)[0].model.releases, strict=True):
        assert not np.array_equal(found.values, expected.values), found.path


@pytest.mark.parametrize("exponent", [196, -196])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_unit_of_the_features_does_not_matter(desk, tmp_path, case, exponent):
    """Powers of two from one end of the allowed clipping norms to the other change no digit of any number."""
    scale = 2.0**exponent
    settings = desk.settings(case, "one_group")
    settings["server_data"]["path"] = lake.write_server(tmp_path / "server.parquet", lake.mixture(60, seed=99) * scale)
    fit = lake.planned(settings)
    found = lake.finished(fit, block_of(case, desk.points * scale))
    expected = desk.reference(case)[0].model
    for release, plain in zip(found.model.releases, expected.releases, strict=True):
        np.testing.assert_array_equal(release.values, plain.values)
    np.testing.assert_array_equal(found.model.centers / scale, expected.centers)
    assert "could not be written" not in report.render(fit, found).html
