"""Epochs at client level: who counts is enforced where rows are read, by a client list that nothing turns back."""

import dataclasses
import functools
import hashlib
import itertools
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyFlowError
from dapple_dp.schemas.kmeans.jobs.stream_config import stream_config
from dapple_dp.schemas.kmeans.lloyd_config import CLIENT_RADIUS
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.participation import Participation
from dapple_dp.transforms.core.stated_sensitivity import Moves, moves_of, understatement, worst_column
from dapple_dp.transforms.kmeans.windows import rounds as rounds
from dapple_dp.transforms.kmeans.windows import server as server
from dapple_dp.transforms.numerics.kmeans.recurring.windows import epoch_sensitivity
from dapple_dp.transforms.numerics.tables.participation import Counted, Rule
from dapple_dp.transforms.tables.counted_clients import ClientList, counted_block, salted_digests
from tests.scenes import lake
from tests.scenes.epochs import CONTRACT, DATES, Place

STATISTIC = "dapple_dp.transforms.kmeans.windows.rounds:window_statistic"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Ninety clients come every day, those from 45 on in two files; window 1 of band 2 and separation 2 counts none."""
    found = Place(tmp_path_factory.mktemp("clients"))
    for date in DATES[:4]:
        found.write(date, range(90))
    found.write(DATES[1], range(45, 90), name="more")
    found.write(DATES[3], range(100, 110), name="new")
    outcome = found.release(DATES[3])
    assert outcome.code == 0, outcome.err
    return found


def test_clients_count_by_the_contract(place):
    """In windows 0 and 2 of the six, not in 1 and 3; those who come first in window 3 count there."""
    last = place.last_list()
    assert last.facts["index"] == 3
    assert sorted(set(last.counted.windows.tolist())) == [-1, 2, 3]
    assert [place.n_counted(window) for window in (2, 3)] == [90, 10]
    assert int(last.counted.times.sum()) == 2 * 90 + 10


def test_rows_that_do_not_count_are_not_released(place):
    """Weights 16 and 6: 16 * 90, 6 * 90, 16 * 90, 6 * 90 + 16 * 10 clients, but for noise of 120 times root 3."""
    found = [place.counts(window) for window in range(4)]
    np.testing.assert_allclose(found, [1440, 540, 1440, 700], atol=5 * 210)
    assert found[0] - found[1] > 300
    assert found[2] - found[3] > 100


def test_the_promise_is_that_of_the_epoch(place):
    stated = place.json(3, "privacy.json")
    assert stated["unit"] == "client"
    assert {name: stated["epoch"][name] for name in CONTRACT} == CONTRACT
    assert "once" not in stated["epoch"]
    column = worst_column((16, 6), 2, 2)
    assert stated["events"][0]["sensitivity_lattice"] == epoch_sensitivity(column, 1 << 26)
    assert "for one client, over all windows" in (place.folder / "january" / "index.html").read_text()


def test_the_state_is_private_and_does_not_grow(place):
    """Two client lists, beside the ledger and for its owner only; no id, no digest and no path of them is released."""
    assert [path.stat().st_mode & 0o777 for path in place.lists()] == [0o600, 0o600]
    assert {path.parent.stat().st_mode & 0o777 for path in place.lists()} == {0o700}
    released = b"".join(path.read_bytes() for path in (place.folder / "january").rglob("*") if path.is_file())
    last = place.last_list()
    assert b".rolls" not in released
    assert not [each for each in last.counted.digests.tolist() if each in released]
    assert not list((place.folder / "january").rglob("*.npz"))


@pytest.fixture(scope="module")
def begun(place, tmp_path_factory):
    """Another place with the same start and one window released."""
    found = Place(tmp_path_factory.mktemp("begun"), start=False)
    shutil.copytree(place.folder / "start", found.folder / "start")
    found.write(DATES[0], range(30))
    assert found.release(DATES[0]).code == 0
    return found


@pytest.fixture
def copied(begun, tmp_path):
    """A copy of it, to be attacked."""
    return begun.copied(tmp_path)


def test_erased_rows_do_not_make_room(copied):
    """A client has its rows of the first window erased, and comes again: it was counted, and is not counted again."""
    shutil.rmtree(copied.folder / "lake" / f"dt={DATES[0]}")
    copied.write(DATES[0], range(20))
    copied.write(DATES[1], range(30))
    outcome = copied.release(DATES[1])
    assert outcome.code == 0, outcome.err
    assert copied.n_counted(1) == 0
    assert copied.n_counted(0) == 30


def test_late_rows_of_clients_that_did_not_count_are_left_out(copied):
    """Rows that are written into a window after its release count for nobody who had none there."""
    copied.write(DATES[0], range(200, 300), name="late")
    copied.write(DATES[1], range(400, 405))
    assert copied.release(DATES[1]).code == 0
    assert [copied.n_counted(window) for window in (0, 1)] == [30, 5]


def test_another_spelling_of_the_ids_is_refused(copied):
    """Integers, then strings of them: they could not be shown to be the same clients."""
    copied.write(DATES[1], [str(each) for each in range(30)])
    shutil.rmtree(copied.folder / "lake" / f"dt={DATES[0]}")
    outcome = copied.release(DATES[1])
    assert outcome.code == 2, outcome.err
    assert "must hold one type of client ids in all files, got integers and strings" in outcome.lines[-1]


def test_another_width_of_the_ids_is_the_same_client(copied):
    """Integers of 16 and 64 bits, signed or not, and dictionaries of them."""
    copied.write(DATES[1], pa.array(range(10), pa.uint64()).to_pylist())
    ids = pa.array(range(10, 20), pa.int16()).dictionary_encode()
    copied.write(DATES[1], range(20, 30), name="more")
    table = lake.table_of(lake.mixture(10)).append_column("client_id", ids)
    pq.write_table(table, copied.folder / "lake" / f"dt={DATES[1]}" / "dictionary.parquet")
    outcome = copied.release(DATES[1])
    assert outcome.code == 0, outcome.err
    assert copied.n_counted(1) == 0


@pytest.mark.parametrize("attack", ["gone", "older", "cut", "of another contract"])
def test_a_client_list_that_is_not_the_last_one_is_refused(copied, attack):
    """A lost client list, or an older one in its place, would have clients counted again."""
    copied.write(DATES[1], range(30))
    (path,) = copied.lists()
    last = copied.last_list()
    if attack == "gone":
        path.unlink()
    elif attack == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        facts = {"older": {"index": -1}, "of another contract": {"max_windows": 9}}[attack]
        path.write_bytes(dataclasses.replace(last, facts=last.facts | facts).to_bytes())
    outcome = copied.release(DATES[1])
    assert outcome.code == 3, outcome.err
    assert "must be the client list of the previous window" in outcome.lines[-1]
    assert not (copied.folder / "january" / DATES[1]).exists()


def other_list(copied, tmp_path_factory):
    """Client list of another ledger's epoch: same names, calendar and contract, and other clients."""
    other = Place(tmp_path_factory.mktemp("other"), start=False)
    shutil.copytree(copied.folder / "start", other.folder / "start")
    other.write(DATES[0], range(27, 200))
    assert other.release(DATES[0]).code == 0
    (path,) = other.lists()
    return path.read_bytes()


def forgetful_list(copied, _):
    """The last client list, from which someone has taken clients out; it says of itself what the last one says."""
    last = copied.last_list()
    fewer = Counted(*(each[:3] for each in last.counted))
    return dataclasses.replace(last, counted=fewer).to_bytes()


@pytest.mark.parametrize("forge", [other_list, forgetful_list])
def test_a_client_list_of_other_content_is_refused(copied, tmp_path_factory, forge):
    """Its facts fit, and clients that counted in the window before would count again."""
    copied.write(DATES[1], range(30))
    (path,) = copied.lists()
    own = path.read_bytes()
    path.write_bytes(forge(copied, tmp_path_factory))
    outcome = copied.release(DATES[1])
    assert outcome.code == 3, outcome.err
    assert "must be the client list of the previous window" in outcome.lines[-1]
    assert not (copied.folder / "january" / DATES[1]).exists()
    path.write_bytes(own)
    assert copied.release(DATES[1]).code == 0
    assert copied.n_counted(1) == 0


def test_the_commit_of_a_window_names_its_client_list(copied):
    assert copied.release(DATES[2]).code == 0
    commits = [each for each in Ledger(copied.ledger.path).entries() if each.kind == "commit"]
    kept = [hashlib.sha256(path.read_bytes()).hexdigest() for path in copied.lists()]
    assert [each.body["roll"] for each in commits][-2:] == kept
    assert len({each.body["roll"] for each in commits}) == 3
    facts = copied.last_list().facts
    reserve = next(each for each in Ledger(copied.ledger.path).entries() if each.kind == "reserve")
    assert (facts["dataset"], facts["begun"]) == ("visits", reserve.body["nonce"])


def test_a_window_whose_commit_names_no_client_list_has_no_next_one(copied, monkeypatch):
    """Ledgers are like that if the epoch began before client lists were known by content."""
    with monkeypatch.context() as patched:
        commit = Ledger.commit
        patched.setattr(
            Ledger, "commit", lambda self, run, content: commit(self, run, {"manifest": content["manifest"]})
        )
        assert copied.release(DATES[1]).code == 0
    outcome = copied.release(DATES[2])
    assert outcome.code == 3, outcome.err
    assert "begin an epoch of another name" in outcome.lines[-1]


def test_an_empty_window_is_released_and_counts_nobody(copied):
    outcome = copied.release(DATES[1])
    assert outcome.code == 0, outcome.err
    assert copied.n_counted(1) == 0
    states = [entry.kind for entry in Ledger(copied.ledger.path).entries()]
    assert states.count("reserve") == states.count("commit") == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_windows": None}, "max_windows is required for privacy.unit client"),
        ({"min_separation": None}, "min_separation is required for privacy.unit client"),
        ({"once": "written once"}, "once isn't supported for privacy.unit client"),
        ({"max_windows": 0}, "stream.max_windows must"),
    ],
)
def test_refused_streams(place, changes, message):
    outcome = place.release(DATES[0], output="refused", **changes)
    assert outcome.code == 2
    assert message in outcome.lines[-1]


# The bound, on arrays: whole epochs with one client more, whatever the centers do.


def config_of(place, **stream):
    return stream_config(place.settings | {"stream": place.stream | stream})


def with_client_list(tables, rule):
    """Rows of every window of clients that count, by the client list; tables are (clients, rows)."""
    counted, found = Counted.nobody(), []
    for window, (clients, points) in enumerate(tables):
        digests = np.array([b"%032x" % each for each in clients], dtype="S32")
        counted = counted.with_window(digests, window, rule)
        keeps = np.isin(digests, counted.of(window))
        order = np.argsort(clients[keeps], kind="stable")
        _, starts = np.unique(clients[keeps][order], return_index=True)
        found.append(ClientBlock(points[keeps][order], np.append(starts, keeps.sum()).astype(np.int64)))
    return found


def released(job, tables, weights, anchors):
    """Exact vectors of the windows of an epoch; `anchors` gives the centers of each window."""
    epoch, memory, found = job.template.epoch, None, []
    rule = Rule(epoch.times, epoch.separation, len(weights), True)
    blocks = with_client_list(tables, rule)
    for index in range(len(tables)):
        state = server.initial_state(job.template.at(index), anchors[index], memory)
        total = np.zeros(15, dtype=np.int64)
        for age, date in enumerate(state.dates):
            placed = rounds.state_at(state, f"lake/dt={date}/a.parquet")
            total += rounds.window_statistic(blocks[index - age], placed, weights=weights)
        found.append(total)
        one = Memory(
            origins=state.positions[None],
            sums=np.zeros((1, 3, 4)),
            counts=np.ones((1, 3)),
            sums_stddevs=np.ones(1),
            counts_stddevs=np.ones(1),
        )
        memory = one if memory is None else memory.then(one, 99)
    return np.array(found)


def with_client(tables, windows, rows_of):
    """One client more, with rows in some windows."""
    found = []
    for index, (clients, points) in enumerate(tables):
        rows = rows_of(index) if index in windows else np.zeros((0, 4))
        found.append((np.append(clients, np.full(len(rows), 777)), np.vstack([points, rows])))
    return found


HABITS = {
    "every day": range(8),
    "twice": (1, 4),
    "as often as may be": (0, 2, 4, 6),
    "once": (5,),
    "in a row": (2, 3, 4),
}


@pytest.mark.parametrize(("times", "separation", "band"), [(3, 2, 2), (3, 1, 3), (2, 3, 3), (8, 1, 4)])
@pytest.mark.parametrize("habit", HABITS)
def test_neighbors_over_a_whole_epoch(place, habit, times, separation, band):
    """A client more: rows at the rim of the radius, all one way, while centers move at random between windows.

    One that comes as often and as closely as may be comes within a tenth of what is stated.
    """
    job = config_of(place, windows=8, band=band, max_windows=times, min_separation=separation)
    weights = job.template.weights
    stated = epoch_sensitivity(rounds.column_of(job.template), 1 << 26)
    assert stated == rounds.round_specs(job.template, 4)[0].releases[0].sensitivity
    assert {each.windows for each in rounds.round_specs(job.template, 4)[0].releases} == {times * band}
    rng = np.random.default_rng(3)
    anchors = [lake.MEANS + rng.normal(0.0, 0.5, (3, 4)) for _ in range(8)]
    tables = [(np.arange(30) // 3, lake.mixture(30, seed=index)) for index in range(8)]
    whole = released(job, tables, weights, anchors)
    state = server.initial_state(job.template, lake.MEANS)
    reach = 0.999 * state.radius * state.unit * CLIENT_RADIUS
    way = np.array([-1.0, 0.2, -0.1, 0.3]) / np.linalg.norm([-1.0, 0.2, -0.1, 0.3])
    kinds = {
        "rim": lambda index: anchors[index][:1] + reach * way,
        "many": lambda index: np.tile(anchors[index][:1] + 50.0 * way, (40, 1)),
        "twice a day": lambda index: np.tile(anchors[index][:1] + reach * way, (2, 1)),
        "huge": lambda index: np.full((1, 4), 1e300),
    }
    closest = 0.0
    for rows_of in kinds.values():
        moved = released(job, with_client(tables, HABITS[habit], rows_of), weights, anchors) - whole
        sums, counts = moved[:, :12].astype(float), moved[:, 12:].astype(float)
        assert np.sqrt((sums**2).sum()) <= stated
        assert np.sqrt((counts**2).sum()) <= epoch_sensitivity(rounds.column_of(job.template), 1 << 20)
        closest = max(closest, float(np.sqrt((sums**2).sum())) / stated)
    if habit == "every day":
        assert closest > 0.9


def test_without_a_client_list_a_daily_client_moves_more_than_is_stated(place):
    """The test above would notice: all windows count where nobody asks a client list."""
    job = config_of(place, windows=8, band=2, max_windows=2, min_separation=2)
    weights, stated = job.template.weights, epoch_sensitivity(rounds.column_of(job.template), 1 << 26)
    free = config_of(place, windows=8, band=2, max_windows=8, min_separation=1)
    anchors = [lake.MEANS] * 8
    tables = [(np.arange(30) // 3, lake.mixture(30, seed=index)) for index in range(8)]
    more = with_client(tables, range(8), lambda _: np.full((1, 4), 7.9))
    moved = (released(free, more, weights, anchors) - released(free, tables, weights, anchors)).astype(float)
    assert np.sqrt((moved[:, :12] ** 2).sum()) > 1.5 * stated
    assert job.template.epoch.times == 2


# The checker.


def contract_with(**changes):
    participation = Participation(
        column="dt", dates=DATES[:2], index=1, max_windows=2, min_separation=2, path="clients", digest="0" * 64
    )
    listed = None if changes.get("listed", True) is None else dataclasses.replace(participation, **changes)
    return TableContract(feature_list="x", n_features=4, client_id="c", by_client=True, participation=listed)


@pytest.mark.parametrize(
    ("changes", "is_enough"),
    [({}, True), ({"max_windows": 3}, False), ({"min_separation": 1}, False), ({"min_separation": 3}, True)],
)
def test_a_plan_for_another_contract_is_refused(place, changes, is_enough):
    """Readers that let clients count more often, or closer together, than the plan pays for."""
    fit = plan_files(config_of(place).template)
    (bound,) = fit.rounds
    moves = moves_of(bound.statistic, [contract_with(**changes)], PrivacyUnit.CLIENT)
    assert (understatement(STATISTIC, bound.plan, replaces=False, moves=moves) is None) is is_enough


@pytest.mark.parametrize(
    ("contracts", "unit"),
    [
        ([contract_with(listed=None)], PrivacyUnit.CLIENT),
        ([contract_with(), contract_with(listed=None)], PrivacyUnit.CLIENT),
        ([contract_with()], PrivacyUnit.RECORD),
    ],
)
@pytest.mark.parametrize("weights", [(16, 6), (1,)])
def test_windows_without_a_client_list_are_refused(contracts, unit, weights):
    """A release that adds up nothing of other windows is one of many that a client moves, too."""
    statistic = functools.partial(rounds.window_statistic, weights=weights)
    assert moves_of(statistic, contracts, unit) is None


def test_what_stands_outermost_is_what_a_statistic_is_called_with():
    inner = functools.partial(rounds.window_statistic, weights=(1,))
    inner.kept = "not taken apart"
    assert functools.partial(inner, weights=(16, 6)).func is inner
    assert moves_of(functools.partial(inner, weights=(16, 6)), [], PrivacyUnit.RECORD) == ((16, 6), 2)


def test_releases_that_a_client_moves_are_counted_as_far_apart_as_they_may_lie(place):
    """Weights 16, 6 and windows one apart: close together three releases are moved by most, far apart four by less."""
    contract = contract_with(min_separation=1)
    fit = plan_files(config_of(place, min_separation=1).template)
    bound = fit.rounds[0]
    assert [each.spec.windows for each in bound.plan.releases] == [4, 4]
    moves = moves_of(bound.statistic, [contract], PrivacyUnit.CLIENT)
    assert moves == Moves((16, 22, 6), 4)
    assert understatement(STATISTIC, bound.plan, replaces=False, moves=moves) is None
    fewer = [dataclasses.replace(each, spec=dataclasses.replace(each.spec, windows=3)) for each in bound.plan.releases]
    plan = dataclasses.replace(bound.plan, releases=tuple(fewer))
    assert "3 windows for weighted_sums" in str(understatement(STATISTIC, plan, replaces=False, moves=moves))


# The readers.


def roll_file(folder, clients, window=1):
    salt = bytes(range(32))
    digests = salted_digests(pa.array(clients, pa.int64()), salt)
    counted = Counted.nobody().with_window(digests, window, Rule(2, 2, 2))
    content = ClientList(facts={"index": window}, salt=salt, kind="integers", counted=counted).to_bytes()
    path = folder / "called.npz"
    path.write_bytes(content)
    return str(path), content


def block_of(clients, rows=2):
    offsets = np.arange(0, rows * len(clients) + 1, rows)
    return ClientBlock(np.arange(offsets[-1], dtype=float)[:, None], offsets, pa.array(clients))


def participation_of(path, content, digest=None):
    return Participation(
        column="dt",
        dates=(DATES[1], DATES[0]),
        index=1,
        max_windows=2,
        min_separation=2,
        path=path,
        digest=digest or hashlib.sha256(content).hexdigest(),
    )


@pytest.mark.parametrize(("date", "expected"), [(DATES[1], [2.0, 3.0, 6.0, 7.0]), (DATES[0], [])])
def test_readers_leave_out_who_does_not_count(tmp_path, date, expected):
    found = counted_block(
        block_of([4, 5, 6, 7]), f"lake/dt={date}/a.parquet", participation_of(*roll_file(tmp_path, [5, 7, 99]))
    )
    assert found.points.ravel().tolist() == expected
    assert found.offsets.tolist() == [*range(0, len(expected) + 1, 2)]


@pytest.mark.parametrize("path", ["lake/a.parquet", f"lake/dt={DATES[5]}/a.parquet"])
def test_rows_of_no_window_are_not_read(tmp_path, path):
    with pytest.raises(PrivacyFlowError, match="must hold rows of the clients that count"):
        counted_block(block_of([4]), path, participation_of(*roll_file(tmp_path, [4])))


def test_a_client_list_that_was_exchanged_meanwhile_is_not_believed(tmp_path):
    participation = participation_of(*roll_file(tmp_path, [4]), digest="1" * 64)
    with pytest.raises(InputError, match="must be the file that this run wrote, got another one"):
        counted_block(block_of([4]), f"lake/dt={DATES[1]}/a.parquet", participation)


def test_ids_of_different_kinds_have_different_digests():
    """And -1 is not the largest of 64 bits, which has its bytes."""
    ids = [pa.array([7]), pa.array(["7"], pa.large_string()), pa.array([b"7"], pa.large_binary())]
    ids += [pa.array([-1]), pa.array([2**64 - 1], pa.uint64())]
    found = [salted_digests(each, bytes(32)).tolist()[0] for each in ids]
    assert all(one != other for one, other in itertools.combinations(found, 2))
    assert salted_digests(ids[0], bytes(31) + b"1").tolist() != found[:1]


def test_settings_of_the_contract_are_shown(place):
    manifest = json.loads((place.folder / "january" / DATES[0] / "run.json").read_text())
    assert manifest["epoch"]["max_windows"] == 2


def test_plan_says_what_daily_clients_lose(place):
    """Figures as in the table of the page: 365 windows, a memory of 30."""
    noise, warned = {}, {}
    for separation, times in ((7, 53), (30, 13)):
        stream = {"windows": 365, "memory": 30, "band": separation, "max_windows": times, "min_separation": separation}
        words = place.words(DATES[0], output="planned", **stream)
        outcome = lake.run_command("plan", "--config", words[2], "--clients", "1000")
        assert outcome.code == 0, outcome.err
        found = json.loads(outcome.out.splitlines()[-1])
        noise[separation], warned[separation] = found["stream"]["noise"], found["warnings"]
        assert "of units that come in every window" in outcome.out
    for separation, expected in ((7, 3.51), (30, 6.47)):
        daily = noise[separation]["in every window"]
        np.testing.assert_allclose([daily["memory alone"], daily["stream"]], [2.487, expected], atol=0.005)
        allowed = noise[separation]["as the contract allows"]
        assert 1.5 < allowed["memory alone"] / allowed["stream"] < 2.2
        assert any("recurring.memory 365 times has less noise" in each for each in warned[separation])


@pytest.mark.parametrize(("memory", "meets"), [(30, True), (4, False)])
def test_plan_warns_of_a_band_whose_columns_meet(place, memory, meets):
    """A memory of 4 has seven weights that are not 0."""
    stream = {"windows": 365, "memory": memory, "band": 8, "max_windows": 53, "min_separation": 7}
    words = place.words(DATES[0], output="planned", **stream)
    found = json.loads(lake.run_command("plan", "--config", words[2], "--clients", "1000").out.splitlines()[-1])
    assert any("stream.band 8 is above stream.min_separation 7" in each for each in found["warnings"]) is meets


@pytest.mark.parametrize("unit", ["client", "record"])
def test_a_stream_under_masks_is_refused(tmp_path, unit):
    """Its releases add up sums of several windows, which nobody may keep under masks."""
    place = Place(tmp_path, unit=unit, start=False)
    masks = {"trust": "masked", "masked": {"secret_uri": "secret"}, "key_uri": "key"}
    with pytest.raises(ConfigError, match=r"^trust must be central for a stream"):
        stream_config(place.settings | masks)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_short_memory_goes_on_beyond_its_weights(tmp_path, unit):
    """A memory of 2 windows has four weights that are not 0: a release adds up four windows, whatever the band is."""
    place = Place(tmp_path, unit=unit, memory=2, band=16)
    for date in DATES[:6]:
        place.write(date, range(900))
    outcome = place.release(DATES[5])
    assert outcome.code == 0, outcome.err
    assert [place.json(index, "privacy.json")["epoch"]["weights"] for index in (0, 5)] == [[16, 4, 2, 1]] * 2
    if unit == "record":
        np.testing.assert_allclose(
            [place.counts(index) / 900 for index in range(6)], [16, 20, 22, 23, 23, 23], atol=0.5
        )
    else:
        assert place.last_list().facts["index"] == 5
