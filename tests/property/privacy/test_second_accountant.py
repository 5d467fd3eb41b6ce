"""Every plan has the laws, the sensitivities and the epsilon that a second accountant computes.

`tests/second_accountant.py` is written from the guarantee alone. Algorithm 4 bounds epsilon in bins of width h, so two
comparisons are made. In the same bins both accountants agree to `SAME`. Without bins epsilon is smaller: by at most
`BINS` of it with Laplace noise, as each loss is rounded up by less than h, and ten h are a thousandth of epsilon; by at
most `CHORDS` where all noise is Gaussian, whose curve is exact at both ends of each bin. `-s` shows the largest
differences.
"""

import math
import sys

import mpmath
import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.kmeans.jobs.stream_config import stream_config
from tests import second_accountant as second
from tests.scenes import epochs, lake
from tests.scenes.protocol_jobs import ALONE
from tests.seams import fits
from tests.seams.fit_story import Story
from tests.seams.places import Place, changed

SAME, CHORDS, BINS = 1e-10, 2e-6, 1e-3
PARTS = 6
SAMPLED = {"data.max_rows_per_client": 7, "data.client_id": "client_id"}
LEVELS = [
    *({"algorithm": str(each)} for each in ALONE),
    {"algorithm": "spherical", "sphere": "words"},
    {"algorithm": "dp_lloyd", "init": "candidates", "server": "rows"},
    {"algorithm": "dp_lloyd", "init": "sphere_packing", "rounds": "three"},
    {"algorithm": "feddp_kmeans", "clipping": "private", "lloyd": "steps", "quality": "share"},
    {"algorithm": "feddp_kmeans", "allocation": "paper", "clipping": "private", "lloyd": "steps", "quality": "share"},
    {"algorithm": "feddp_kmeans", "allocation": "published"},
]
"""Jobs that are planned at both units, and with sampled rows, on every submission."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with lake.keys_of_runs(), lake.without_beam():
        yield Place(tmp_path_factory.mktemp("second"))


class Tally:
    """Results of both accountants for plans, one after the other."""

    def __init__(self):
        self.plans, self.releases, self.same, self.chords, self.bins = 0, 0, 0.0, 0.0, 0.0

    def add(self, row, job):
        """A plan has the laws and sensitivities of the second accountant, and its epsilon."""
        self.compare(lake.planned(job).statement, row, job)

    def compare(self, statement, row, job):
        """A statement, of a row of a table, of a job."""
        noises, privacy = [], job["privacy"]
        for event in statement.events:
            release = second.expected(job, event["path"], statement.epoch)
            stated = (event["mechanism"], event["geometry"], event["sensitivity_lattice"])
            assert stated == release[:3], (row, event["path"])
            noises.append(second.noise(release, event["shape"], event["noise_multiplier"]))
        assert noises
        assert statement.delta == privacy["delta"]
        found = second.spent(noises, privacy["epsilon"], privacy["delta"])
        assert found.exact <= statement.epsilon <= privacy["epsilon"], row
        self.plans, self.releases = self.plans + 1, self.releases + len(noises)
        self.same = max(self.same, abs(statement.epsilon / found.binned - 1.0))
        above = statement.epsilon / found.exact - 1.0
        if all(each.variances for each in noises):
            self.chords = max(self.chords, above)
        else:
            self.bins = max(self.bins, above)

    def check(self):
        """No difference is above its bound."""
        sys.stdout.write(
            f"\n{self.plans} plans, {self.releases} releases; largest differences of epsilon: {self.same:.2g} in the "
            f"same bins, {self.chords:.2g} and {self.bins:.2g} (with Laplace noise) without bins"
        )
        assert self.same <= SAME
        assert self.chords <= CHORDS
        assert self.bins <= BINS


@pytest.mark.parametrize("unit", ["record", "client", "sampled"])
def test_plans_of_every_algorithm(unit, place):
    tally = Tally()
    for levels in LEVELS:
        row = fits.TABLE.completed(levels | {"unit": "client" if unit == "client" else "record"})
        tally.add(row, changed(fits.settings(row, place), SAMPLED if unit == "sampled" else {}))
    tally.check()


@pytest.mark.parametrize("unit", ["record", "client"])
def test_plans_of_windows(unit, place, tmp_path):
    """Windows whose clients meet in one release, and those that are far apart."""
    tally, days = Tally(), epochs.Place(tmp_path, unit=unit)
    days.write(epochs.DATES[0], range(40))
    contracts = [{"max_windows": times, "min_separation": apart} for times in (1, 3) for apart in (1, 2)]
    for memory, band in ((4, 2), (2, 9), (30, 5)):
        for contract in contracts if unit == "client" else [{}]:
            changes = {"memory": memory, "band": band, **contract}
            job = days.settings | {"stream": days.stream | changes}
            tally.compare(plan_files(stream_config(job).template).statement, changes, job)
    tally.check()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_plans_of_every_row_of_the_table(part, place, tmp_path):
    tally, rows = Tally(), fits.TABLE.rows()
    for index in range(part, len(rows), PARTS):
        row, story = rows[index], Story(rows[index], place, tmp_path / str(index))
        job = story.job
        if row["start"] != "fresh":
            # Of the run before, its centers count, and not who added up its sums.
            before = changed(job, {"recurring": None, "ledger": None, "trust": None, "masked": None})
            story.made("fit", before, "before", "--run_id", "before")
            job = changed(job, {"recurring.previous": str(tmp_path / str(index) / "before")})
        tally.add(row, job)
    assert tally.plans >= 132 // PARTS
    tally.check()


def test_exact_losses_by_hand():
    """One response has the closed form of its divergence; one Gaussian its root in 50 digits; both their integral."""
    response = second.Noise(0.5, {})
    assert second.losses([response]).delta(1.0) == pytest.approx(
        (math.exp(2.0) - math.exp(1.0)) / (1.0 + math.exp(2.0)), rel=1e-14
    )
    gaussian = second.Noise(4.0, {2.0**60: 1})
    with mpmath.workdps(50):
        root = mpmath.findroot(
            lambda e: mpmath.ncdf(0.125 - 4 * e) - mpmath.exp(e) * mpmath.ncdf(-0.125 - 4 * e) - mpmath.mpf("1e-9"), 1.4
        )
    assert second.losses([gaussian]).epsilon(1e-9) == pytest.approx(float(root), rel=1e-12)
    points = np.linspace(-60.0, 61.0, 2_000_001)
    density = {center: np.exp(-0.5 * ((points - center) / 4.0) ** 2) / math.sqrt(32.0 * math.pi) for center in (0, 1)}
    truth = 1.0 / (1.0 + math.exp(-2.0))
    over = sum(
        np.maximum(0.0, one * density[1] - math.exp(1.5) * (1.0 - one) * density[0]) for one in (truth, 1.0 - truth)
    )
    assert second.losses([gaussian, response]).delta(1.5) == pytest.approx(
        np.sum(over) * (points[1] - points[0]), rel=1e-6
    )
