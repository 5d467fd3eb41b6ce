"""Whole runs that release how well their centers fit."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.kmeans.report import report_page as report
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.privacy.statement import describe
from dapple_dp.transforms.core import accounting, loop
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.core.round import measure
from tests.scenes import lake

N_ROWS, CLIENT_ROWS = 3000, 10
LARGE_EPSILON = 200.0


class Place:
    """One lake and the jobs on it."""

    def __init__(self, folder):
        self.points = lake.mixture(N_ROWS)
        clients = np.arange(N_ROWS) // CLIENT_ROWS
        self.data = lake.write_lake(folder / "rows", self.points, clients, n_files=3, row_group_size=500)
        self.server = lake.write_server(folder / "server.parquet")
        self.key = lake.write_key(folder / "key")

    def job(self, unit="record", **settings):
        settings = {"quality": {}, "privacy__epsilon": LARGE_EPSILON, "key_uri": self.key} | settings
        return lake.job(self.data, self.server, unit, **settings)

    def block(self, unit):
        return ClientBlock(self.points, np.arange(0, N_ROWS + 1, CLIENT_ROWS) if unit == "client" else None)

    def finished(self, unit="record", **settings):
        fit = lake.planned(self.job(unit, **settings))
        return fit, lake.finished(fit, self.block(unit))

    def squared(self, centers):
        """Squared distance of each row to its nearest center, and that center."""
        squared = ((self.points[:, None] - centers) ** 2).sum(axis=2)
        return squared.min(axis=1), squared.argmin(axis=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("quality"))


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("allocation", ["tuned", "paper"])
def test_with_little_noise_it_is_the_exact_cost_and_sizes(place, allocation, unit):
    # No row is clipped: means are 4 from the center, and rows 2 from the means.
    settings = {"clipping__norm": 8.0, "lloyd": {"steps": 1}, "quality": {"share": 0.5}}
    _, result = place.finished(unit, privacy__allocation=allocation, **settings)
    squared, labels = place.squared(result.model.centers)
    cost = result.model.noisy_cost
    # Five stddevs: fails for one key in a million, and the key is fixed.
    assert abs(cost.mean - squared.mean()) <= 5.0 * cost.stddev
    assert cost.stddev < 0.15 * squared.mean()
    sizes = np.bincount(labels, minlength=3) / (CLIENT_ROWS if unit == "client" else 1)
    assert result.model.releases[-1].path == "feddp_kmeans/quality/sizes"
    np.testing.assert_allclose(result.model.noisy_sizes, sizes, atol=6.0 * result.model.releases[-1].stddev)


def test_its_stddev_is_that_of_many_runs(place):
    fit = lake.planned(place.job(privacy__epsilon=4.0))
    block, last = place.block("record"), fit.rounds[-1]
    *_, state = loop.simulate(fit.initial, fit.rounds[:-1], [block], lake.KEY).states
    exact = measure(last, block, state.broadcast())
    keys = [number.to_bytes(32, "big") for number in range(400)]
    costs = [last.step(state, draw_release(key, last.plan, exact)).noisy_cost for key in keys]
    # The stddev of 400 draws is off by 14% (four of its own stddevs) for one set of keys in 15,000.
    assert np.std([each.mean for each in costs]) == pytest.approx(np.mean([each.stddev for each in costs]), rel=0.15)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_public_number_takes_the_place_of_the_noisy_one(place, unit):
    number = N_ROWS // CLIENT_ROWS if unit == "client" else N_ROWS
    _, result = place.finished(unit, data__public_rows=number, privacy__epsilon=4.0)
    cost = result.model.releases[-2]
    assert result.model.noisy_cost.mean == cost.decoded[0] / number
    assert result.model.noisy_cost.stddev == cost.stddev / number


def test_sampled_rows_are_not_divided_by_the_number_of_all_rows(place):
    settings = place.job(data__public_rows=N_ROWS, data__client_id="client_id", data__max_rows_per_client=2)
    fit = lake.planned(settings)
    model = lake.chain(fit, ClientBlock(place.points[:600])).model()
    assert model.noisy_cost.mean == pytest.approx(place.squared(model.centers)[0][:600].mean(), rel=0.2)


def test_a_cap_lowers_the_noise_and_is_not_passed(place):
    _, without = place.finished(privacy__epsilon=4.0)
    fit, result = place.finished(privacy__epsilon=4.0, quality={"max_distance": 0.5})
    np.testing.assert_array_equal(result.model.centers, without.model.centers)
    assert result.model.noisy_cost.stddev < 0.1 * without.model.noisy_cost.stddev
    capped = np.minimum(place.squared(result.model.centers)[0], 0.25).mean()
    assert result.model.noisy_cost.mean == pytest.approx(capped, abs=5.0 * result.model.noisy_cost.stddev)
    assert "distance (at most 0.5)" in report.render(fit, result).html


@pytest.mark.parametrize("allocation", ["tuned", "paper"])
def test_the_budget_composes_to_the_target_with_it(place, allocation):
    settings = {"privacy__allocation": allocation, "lloyd": {"steps": 1}}
    settings |= {"privacy__epsilon": 1.0, "quality": {"share": 0.2}}
    plan = lake.planned(place.job(**settings)).plan
    assert plan.rounds[-1].path == "feddp_kmeans/quality"
    assert 0.995 <= plan.epsilon <= 1.0
    assert accounting.compose_epsilon(plan.rounds, plan.delta - plan.discretization_slack, 1.0) <= 1.0
    assert accounting.compose_epsilon(plan.rounds[:-1], plan.delta, 1.0) < 0.95
    assert [each["path"].rpartition("/")[2] for each in describe(plan)[-2:]] == ["cost", "sizes"]


@pytest.mark.parametrize("unit", ["record", "client"])
def test_clusters_that_were_not_chosen_are_noise_alone(place, tmp_path, unit):
    choice = {"max": 7, "choose": "elbow"}
    settings = place.job(unit, n_clusters=choice, privacy__epsilon=8.0)
    result = lake.run_fit(settings, tmp_path / "out")
    assert result.model.n_clusters == 3
    assert result.model.noisy_sizes.shape == (3,)
    sizes = result.model.releases[-1]
    assert sizes.values.shape == (7,)
    assert np.abs(sizes.decoded[3:]).max() < 5.0 * sizes.stddev
    np.testing.assert_array_equal(result.model.noisy_sizes, sizes.decoded[:3])
    expected = lake.chain(lake.planned(settings), place.block(unit)).model()
    assert result.model.noisy_cost == expected.noisy_cost


def test_files_and_report_hold_it(place, tmp_path):
    settings = place.job(privacy__epsilon=4.0)
    outcome = lake.run_job(settings, tmp_path)
    assert outcome.code == 0, outcome.err
    files = [pq.read_table(io.BytesIO(content)) for content in lake.released(tmp_path / "out").values()]
    cost = model_from_tables(*files).noisy_cost
    manifest = (tmp_path / "out" / "run.json").read_text()
    assert f'"mean": {cost.mean!r}' in manifest
    text = (tmp_path / "out" / "report.html").read_text()
    assert f"{cost.mean:.4g} ± {2 * cost.stddev:.2g}" in text
    heading = text.split("How well the centers fit")[1].split("</h3>")[0]
    assert "released" in heading


def test_a_run_without_it_has_none(place):
    fit, result = place.finished(quality=None)
    assert result.model.noisy_cost is None
    assert "How well the centers fit" not in report.render(fit, result).html
