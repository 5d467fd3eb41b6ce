"""Windows of an epoch: one charge, correlated noise, and a promise for all releases together."""

import dataclasses
import functools
import json
import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.jobs.run_job import run_settings
from dapple_dp.pipelines.kmeans.fit import JOB
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.ledger.store import Ledger, charges_of, limits_of
from dapple_dp.pipelines.run.options import parse_job
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, DappleError
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.kmeans.windows_config import coefficients
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.core.stated_sensitivity import Moves, moves_of, understatement, weights_of
from dapple_dp.transforms.kmeans.windows import rounds as rounds
from dapple_dp.transforms.kmeans.windows import server as server
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.recurring.memory import memory_of, most_runs
from dapple_dp.transforms.numerics.kmeans.recurring.windows import epoch_sensitivity, mixing, own_part
from dapple_dp.transforms.privacy import ledger_filter
from tests.scenes import lake, ledgers
from tests.scenes.brokers import CATCH_UP
from tests.scenes.lake import fit_of

DATES = tuple(f"2026-01-0{day}" for day in range(1, 7))
EPOCH = {"name": "january", "column": "dt", "first": DATES[0], "windows": 6, "band": 3, "once": "made for a test"}


class Place:
    """A lake by date, a start, and a ledger for one epoch."""

    def __init__(self, folder, rows=600):
        self.folder = folder
        for index, date in enumerate(DATES):
            if index != 3:
                lake.write_lake(folder / "lake" / f"dt={date}", lake.mixture(rows, seed=index))
        self.ledger = ledgers.new_ledger(folder, Limit(epsilon=5.0, delta=1e-5), "visits")
        self.job = lake.job(
            str(folder / "lake"), None, algorithm="dp_lloyd", dp_lloyd={"domain": [-8.0, 8.0], "steps": 2}
        )
        del self.job["server_data"], self.job["clipping"], self.job["feddp_kmeans"]
        start = self.job | {"data": self.job["data"] | {"path": lake.write_lake(folder / "before", lake.mixture(rows))}}
        assert self.run("start", start).code == 0

    def run(self, name, settings, run_id=None):
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
        words = ("--config", str(self.folder / f"{name}.yaml"), "--output", str(self.folder / name))
        return lake.run_command("fit", *words, "--run_id", run_id or name)

    def settings(self, index, **epoch):
        before = "start" if index == 0 else f"january/{DATES[index - 1]}"
        section = EPOCH | {"window": DATES[index]} | epoch
        recurring = {"previous": str(self.folder / before), "memory": 4}
        data = self.job["data"] | {"name": "visits"}
        of_window = {"algorithm": "windows", "epoch": section, "recurring": recurring}
        return self.job | {"data": data, "ledger": self.ledger.path} | of_window

    def window(self, index, name=None, **epoch):
        return self.released(name or DATES[index], self.settings(index, **epoch))

    def released(self, name, settings):
        """Runs a window as the stream does, but by its own settings."""
        options = parse_job("fit", ("--config", "none", "--output", str(self.folder / name), "--run_id", name))
        try:
            run_settings(JOB, fit_of(settings), options)
        except DappleError as error:
            return lake.Outcome(error.exit_code, "", str(error))
        return lake.Outcome(0, "", "")

    def stream(self, output, until, **changes):
        """Calls the job for the windows up to a date; returns its outcome and last line."""
        section = {name: value for name, value in EPOCH.items() if name != "name"} | {"name": output, "memory": 4}
        section |= {"start": str(self.folder / "start"), "until": until} | changes
        settings = self.settings(0) | {"algorithm": "dp_lloyd", "stream": section}
        del settings["recurring"], settings["epoch"]
        (self.folder / f"{output}.yaml").write_text(yaml.safe_dump(settings))
        return lake.run_command(
            "stream", "--config", str(self.folder / f"{output}.yaml"), "--output", str(self.folder / output), *CATCH_UP
        )

    def json(self, index, file):
        return json.loads((self.folder / "january" / DATES[index] / file).read_text())

    def decoded(self, index):
        """Releases of a window: sums and counts as arrays."""
        rows = pq.read_table(self.folder / "january" / DATES[index] / "releases.parquet").to_pylist()
        return [np.reshape(row["values_lattice"], row["shape"]) * row["lattice_unit"] for row in rows]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    found = Place(tmp_path_factory.mktemp("epoch"))
    for until, released in ((DATES[0], DATES[:1]), (DATES[4], DATES[1:5]), (DATES[4], ())):
        outcome = found.stream("january", until)
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["released"] == list(released)
    assert json.loads(outcome.out)["windows_left"] == 1
    return found


def test_an_epoch_is_charged_once(place):
    """Five windows are reserved and committed, and cost what one of them states."""
    states = [entry.kind for entry in Ledger(place.ledger.path).entries()]
    assert states.count("reserve") == states.count("commit") == 5
    stated = place.json(4, "privacy.json")
    assert stated["epoch"]["index"] == 4
    assert 0.99 * 2.0 <= stated["epsilon"] <= 2.0
    entries = Ledger(place.ledger.path).entries()
    spent = ledger_filter.most_spent(limits_of(entries)["visits"], charges_of(entries, "visits"))
    multipliers = [event["noise_multiplier"] for event in stated["events"]]
    assert spent.precision == pytest.approx(sum(each**-2 for each in multipliers))


def test_an_empty_window_is_released_like_any_other(place):
    """Nobody came on the fourth day, and the release does not show it but for its noisy counts."""
    assert {each.name for each in (place.folder / "january" / DATES[3]).iterdir()} == {
        each.name for each in (place.folder / "january" / DATES[2]).iterdir()
    }
    sizes = pq.read_table(place.folder / "january" / DATES[3] / "centers.parquet").column("noisy_size").to_numpy()
    assert np.abs(sizes).sum() < 300


def test_centers_follow_from_all_windows(place):
    """A row's effect on a release is small against 600 rows, so centers are near the three means."""
    centers = pq.read_table(place.folder / "january" / DATES[4] / "centers.parquet").column("center").to_pylist()
    for mean in lake.MEANS:
        assert min(np.linalg.norm(np.array(center) - mean) for center in centers) < 1.0
    assert place.json(4, "drift.json")["memory"]["runs"] == 5


def test_releases_take_apart_into_windows(place):
    """Own counts solved by hand from three releases: weights (16, 6, 3) with memory 4 and band 3."""
    weights = coefficients(3, 4)
    assert weights == (16, 6, 3)
    counts = [place.decoded(index)[1] for index in range(3)]
    first = counts[0] / 16
    second = (counts[1] - 6 * first) / 16
    third = (counts[2] - 6 * second - 3 * first) / 16
    memory = pq.read_table(place.folder / "january" / DATES[2] / "memory.parquet").to_pylist()
    found = [row["noisy_count"] for row in memory if row["age"] == 0]
    np.testing.assert_allclose(found, third, rtol=1e-9)


def test_a_stream_has_a_page_of_all_windows(place):
    page = (place.folder / "january" / "index.html").read_text()
    assert "5 of 6, from 2026-01-01" in page
    assert "Noisy sizes" in page
    assert "could not be" not in page


def test_a_row_from_the_far_future_changes_nothing(place):
    """A folder of a date that nobody asks for is not read, and no window is due because of it."""
    lake.write_lake(place.folder / "lake" / "dt=2099-01-01", lake.mixture(5))
    try:
        assert json.loads(place.stream("january", DATES[4]).out)["released"] == []
        source = plan_files(fit_of(place.settings(4))).source
        assert not [path for path in source.list_files() if "2099" in path]
    finally:
        shutil.rmtree(place.folder / "lake" / "dt=2099-01-01")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a/b"}, "stream.name must"),
        ({"windows": 0}, "stream.windows must"),
        ({"first": "2026-02-30"}, "stream.first must"),
        ({"memory": 1}, "stream.memory must"),
        ({"once": ""}, "stream.once must"),
    ],
)
def test_refused_streams(place, changes, message):
    outcome = place.stream("refused", DATES[0], **changes)
    assert outcome.code == 2
    assert message in outcome.lines[-1]


@pytest.mark.parametrize(
    ("index", "epoch", "message"),
    [
        (2, {}, "was charged already"),
        (5, {"windows": 7}, "must have the same job|with the same section"),
        (5, {"band": 2}, "must have the same job|with the same section"),
    ],
)
def test_a_window_is_released_once_and_as_the_others(place, index, epoch, message):
    outcome = place.window(index, "again", **epoch)
    assert outcome.code in (2, 3)
    assert any(part in outcome.lines[-1] for part in message.split("|"))
    assert not (place.folder / "again").exists()


def test_a_window_follows_the_one_before(place):
    settings = place.settings(5)
    settings["recurring"]["previous"] = str(place.folder / "january" / DATES[2])
    outcome = place.released("skips", settings)
    assert outcome.code == 2
    assert "must be the window of 2026-01-05" in outcome.lines[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": {"window": "2026-01-07"}}, r"window must be one of the 6 dates"),
        ({"epoch": {"window": "2025-12-31"}}, r"window must be one of the 6 dates"),
        ({"epoch": {"window": "january"}}, r"window must be a date"),
        ({"epoch": {"days": 4, "window": "2026-01-03"}}, r"window must be one of the 6 dates"),
        ({"job": {"ledger": None}}, r"ledger is required"),
        ({"recurring": {"memory": None}}, r"recurring\.memory must be an integer, got nothing"),
        ({"data": {"partitions": {"dt": "2026-01-01"}}}, r"data\.partitions must not hold dt"),
        (
            {"privacy": {"unit": "client"}, "data": {"client_id": "who"}},
            r"once isn't supported for",
        ),
        ({"epoch": {"max_windows": 2}}, r"max_windows isn't supported for privacy\.unit record"),
        ({"epoch": {"min_separation": 2}}, r"min_separation isn't supported for privacy\.unit record"),
        ({"epoch": {"once": None}}, r"once is required for privacy\.unit record"),
        (
            {"job": {"trust": "masked", "masked": {"secret_uri": "secret"}, "key_uri": "key"}},
            r"^trust must be central for algorithm windows, got 'masked'; a release",
        ),
        ({"data": {"client_id": "who", "max_rows_per_client": 1}}, r"max_rows_per_client isn't supported"),
    ],
)
def test_refused_settings(place, changes, message):
    settings = json.loads(json.dumps(place.settings(1)))
    for section, values in changes.items():
        holder = settings if section == "job" else settings[section]
        holder.update(values)
    with pytest.raises(ConfigError, match=message):
        fit_of({name: value for name, value in settings.items() if value is not None})


def released(fit, tables):
    """Exact vectors of the windows of an epoch, for rows by window; centers follow any rule of what was released."""
    rng, memory, found = np.random.default_rng(3), None, []
    centers = lake.MEANS + 0.3
    for index in range(len(tables)):
        state = server.initial_state(fit.config.at(index), centers, memory)
        bound = fit.rounds[0]
        total = np.zeros(bound.plan.size, dtype=np.int64)
        for age, date in enumerate(state.dates):
            placed = bound.at(state, f"lake/dt={date}/a.parquet")
            assert placed.age == age
            total += bound.statistic(ClientBlock(tables[index - age]), placed)
        found.append(total)
        one = Memory(
            origins=state.positions[None],
            sums=np.zeros((1, *centers.shape)),
            counts=np.ones((1, len(centers))),
            sums_stddevs=np.ones(1),
            counts_stddevs=np.ones(1),
        )
        memory = one if memory is None else memory.then(one, 99)
        centers = centers + rng.normal(0.0, 0.5, centers.shape)
    return np.array(found)


def test_neighbors_over_a_whole_epoch(place):
    """One row more in any window, near or far: all releases together move by at most the sensitivity that each states.

    A row at the rim of the radius comes within a hundredth of it, so that a smaller statement would be false.
    """
    fit = plan_files(fit_of(place.settings(0)))
    weights = fit.config.weights
    tables = [lake.mixture(40, seed=index) for index in range(6)]
    whole = released(fit, tables)
    stated = fit.rounds[0].plan.releases[0].spec.sensitivity
    assert stated == epoch_sensitivity(weights, 1 << 26)
    closest, rng = 0.0, np.random.default_rng(4)
    for window in range(6):
        for row in [np.full(4, 7.9), np.full(4, 1e300), *rng.uniform(-8.0, 8.0, (6, 4))]:
            more = [np.vstack([table, row]) if index == window else table for index, table in enumerate(tables)]
            moved = released(fit, more) - whole
            sums, counts = moved[:, :12].astype(float), moved[:, 12:].astype(float)
            assert np.sqrt((sums**2).sum()) <= stated
            assert np.sqrt((counts**2).sum()) <= fit.rounds[0].plan.releases[1].spec.sensitivity
            closest = max(closest, float(np.sqrt((sums**2).sum())) / stated)
    assert closest > 0.9


def test_a_row_that_comes_late_or_is_erased_moves_less(place):
    """A row of the first window that is there in some of the releases only."""
    fit = plan_files(fit_of(place.settings(0)))
    tables = [lake.mixture(40, seed=index) for index in range(6)]
    whole = released(fit, tables)
    more = [np.vstack([tables[0], np.full(4, 7.9)]), *tables[1:]]
    moved = (released(fit, more) - whole).astype(float)
    stated = fit.rounds[0].plan.releases[0].spec.sensitivity
    for windows in ([1, 2], [0, 2], [0], [2]):
        assert 0.0 < np.sqrt((moved[windows, :12] ** 2).sum()) < np.sqrt((moved[:, :12] ** 2).sum()) <= stated


def test_windows_with_other_noise_count_with_the_least():
    """Multipliers 4 and 5 of one release, 7 and 6 of another, in two windows: 4 and 6 count."""

    def window(index, first, second):
        events = tuple(
            {"path": path, "mechanism": "discrete_gaussian", "noise_multiplier": noise}
            for path, noise in (("sums", first), ("counts", second))
        )
        epoch = {"name": "e", "window": DATES[index], "index": index}
        return ledgers.charge(events=events, dataset="visits", epoch=epoch)

    spent = ledger_filter.total(Limit(epsilon=9.0, delta=1e-5), [window(0, 4.0, 7.0), window(1, 5.0, 6.0)])
    assert spent.precision == pytest.approx(4.0**-2 + 6.0**-2)
    assert spent.n_gaussian == 1


@pytest.mark.parametrize(
    ("first", "second", "epsilon"),
    [((5.0, 6.0), (4.0, 6.0), 2.0), ((4.0, 6.0), (5.0, 6.0), 1.0), ((4.0, 7.0), (5.0, 6.0), 3.0)],
)
def test_where_epsilons_add_up_an_epoch_counts_with_its_largest(first, second, epsilon):
    """A limit without a part for Gaussian releases: the least noise is that of the second, the first, or of neither."""
    charges = [
        ledgers.charge(
            spent,
            events=tuple({"path": path, "noise_multiplier": each} for path, each in zip("ab", noise, strict=True)),
            epoch={"name": "e", "window": DATES[index], "index": index},
        )
        for index, (spent, noise) in enumerate(((1.0, first), (2.0, second)))
    ]
    assert ledger_filter.total(ledgers.basic_limit(9.0), charges).basic_epsilon == pytest.approx(epsilon)


def test_the_innermost_folder_is_the_date_and_other_spellings_are_refused(place):
    """Only listed files count for a window: a folder in a folder, and a date with escaped letters."""
    fit = plan_files(fit_of(place.settings(2)))
    spelled = [f"dt={DATES[0]}/dt={DATES[1]}", "dt=2026%2D01%2D01", "dt=2026-1-01", f"DT={DATES[0]}"]
    for folder in spelled:
        lake.write_lake(place.folder / "lake" / "more" / folder, lake.mixture(5))
    try:
        listed = [path for path in plan_files(fit_of(place.settings(2))).source.list_files() if "/more/" in path]
    finally:
        shutil.rmtree(place.folder / "lake" / "more")
    assert [path.rpartition("/more/")[2].rpartition("/")[0] for path in listed] == [spelled[0]]
    assert fit.initial.at(listed[0]).age == 1


def test_a_removed_window_is_not_drawn_again(place):
    kept = place.folder / "kept"
    shutil.move(place.folder / "january" / DATES[2], kept)
    try:
        outcome = place.stream("january", DATES[4])
        assert outcome.code == 3, outcome.err
        assert "the release of run" in outcome.lines[-1]
        assert not (place.folder / "january" / DATES[2]).exists()
    finally:
        shutil.move(kept, place.folder / "january" / DATES[2])


def test_a_stream_of_the_same_name_elsewhere_draws_nothing(place):
    """The same calendar into another folder: every window is released already, and the ledger knows it."""
    entries = len(Ledger(place.ledger.path).entries())
    settings = yaml.safe_load((place.folder / "january.yaml").read_text())
    (place.folder / "elsewhere.yaml").write_text(yaml.safe_dump(settings))
    words = ("--config", str(place.folder / "elsewhere.yaml"), "--output", str(place.folder / "elsewhere"))
    outcome = lake.run_command("stream", *words)
    assert outcome.code in (2, 3), outcome.err
    assert len(Ledger(place.ledger.path).entries()) == entries
    assert not list((place.folder / "elsewhere").glob("*/centers.parquet"))


def test_a_plan_for_one_window_alone_is_refused(place):
    """The checker asks for the sensitivity of the epoch, not for that of one window."""
    fit = plan_files(fit_of(place.settings(0)))
    bound = fit.rounds[0]
    name = "dapple_dp.transforms.kmeans.windows.rounds:window_statistic"
    weights = weights_of(bound.statistic)
    assert weights == (16, 6, 3)
    assert understatement(name, bound.plan, replaces=False, moves=Moves(weights, 3)) is None
    once = dataclasses.replace(
        bound.plan,
        releases=tuple(
            dataclasses.replace(each, spec=dataclasses.replace(each.spec, windows=1)) for each in bound.plan.releases
        ),
    )
    assert "1 windows for weighted_sums" in str(understatement(name, once, replaces=False, moves=Moves(weights, 3)))
    heavier = functools.partial(rounds.window_statistic, weights=(16, 7, 3))
    assert understatement(name, bound.plan, replaces=False, moves=moves_of(heavier, [], PrivacyUnit.RECORD)) is not None


def test_coefficients():
    assert coefficients(1, 30) == (16,)
    assert coefficients(4, 30) == (16, 8, 6, 5)
    assert all(weight > 0 for weight in coefficients(10_000, 2))
    assert epoch_sensitivity((3, 4), 10) == 50
    assert epoch_sensitivity((1, 1), 10) == 15


@pytest.mark.parametrize("band", [1, 2, 3, 5, 16, 40])
@pytest.mark.parametrize("memory", range(2, 13))
def test_every_fact_of_a_release_counts_the_same_windows(place, memory, band):
    """Dates that are read, weights, account, checker and what is solved for, whichever of the two is shorter."""
    settings = place.settings(0, band=band, windows=50)
    settings["recurring"]["memory"] = memory
    job = fit_of(settings)
    weights, (_, dates) = job.weights, job.at(45).folders
    assert len(weights) <= band
    assert len(dates) == len(weights) <= most_runs(memory)
    (spec,) = {each.windows for each in rounds.round_specs(job, 4)[0].releases}
    moves = moves_of(functools.partial(rounds.window_statistic, weights=weights), [], PrivacyUnit.RECORD)
    assert moves == Moves(weights, spec) == Moves(rounds.column_of(job), len(weights))
    kept, rng = None, np.random.default_rng(memory)
    for index in range(len(weights) + 2):
        state = server.initial_state(job.at(index), lake.MEANS, kept)
        assert len(state.dates) == min(index + 1, len(weights)) == len(state.earlier_sums) + 1
        placed = rounds.state_at(state, f"lake/dt={state.dates[-1]}/a.parquet")
        assert rounds.window_statistic(ClientBlock(rng.normal(size=(3, 4))), placed, weights=weights).any()
        one = memory_of(NoisyMeans(np.ones((3, 4)), np.ones(3), 1.0, 1.0), lake.MEANS)
        kept = one if kept is None else kept.then(one, most_runs(memory))


def test_own_parts_and_their_noise():
    """Parts that are solved for are the windows' own; their noise is the mixing of the noises."""
    rng, weights = np.random.default_rng(5), (16, 6, 3)
    exact, noise = rng.normal(0.0, 9.0, 9), rng.normal(0.0, 1.0, 9)
    noisy = [sum(w * exact[t - i] for i, w in enumerate(weights) if t >= i) + noise[t] for t in range(9)]
    own = []
    for each in noisy:
        own.append(float(own_part(np.array(each), np.array(own[::-1]), weights)))
    np.testing.assert_allclose(own, exact + mixing(weights, 9) @ noise / 16)


@pytest.mark.parametrize(("length", "band", "factor"), [(30, 32, 4.75), (30, 16, 4.45), (7, 8, 2.0)])
def test_correlated_noise_is_as_much_smaller_as_predicted(length, band, factor):
    """Variance of a decayed sum of 365 windows against independent noise of the same epsilon: spec, K = 1."""
    weights = coefficients(band, length)
    decayed = (1.0 - 1.0 / length) ** np.arange(365)[::-1]
    correlated = sum(w**2 for w in weights) / weights[0] ** 2 * ((decayed @ mixing(weights, 365)) ** 2).sum()
    assert (decayed**2).sum() / correlated == pytest.approx(factor, abs=0.06)
    assert math.isclose((decayed**2).sum(), (decayed @ mixing((1,), 365)) @ (decayed @ mixing((1,), 365)))
