"""Masked aggregation by jobs of their own: what each role leaves, in which order, and what is refused."""

import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.model import model_from_tables
from dapple_dp.schemas.masked.exchange import messages_to_table
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.numerics.masked.public_keys import seal
from tests.pipeline.privacy.test_secrets import spellings_in
from tests.scenes import lake, ledgers
from tests.scenes.draws import recorded_draws
from tests.scenes.parties import ExchangingParties, enroll, opened
from tests.statistical.test_mask_uniformity import FRESH, looks_uniform

pytestmark = pytest.mark.slow

SECRET = bytes(range(51, 83))
N_CLIENTS, CLIENT_ROWS = 6, 12


class Parties(ExchangingParties):
    """Clients with a file and a job each, an aggregator, and the folders between them."""

    job_file = "client"

    def __init__(self, folder: pathlib.Path, n_clients: int = N_CLIENTS, **settings):
        super().__init__(folder)
        self.draws, self.n_clients = [], n_clients
        self.points = lake.mixture(n_clients * CLIENT_ROWS).reshape(n_clients, CLIENT_ROWS, -1)
        server = lake.write_server(folder / "server.parquet")
        secret_uri = lake.write_key(folder / "secret", SECRET)
        for client in range(n_clients):
            path = lake.write_files(folder / f"lake-{client}", [lake.table_of(self.points[client])])
            job = lake.job(path, server, trust="masked", **{"lloyd": {"steps": 1}} | settings)
            job["masked"] = job.get("masked", {}) | {"secret_uri": secret_uri, "state_uri": str(folder / "state")}
            (folder / f"client-{client}.yaml").write_text(yaml.safe_dump(job))
            enroll(folder / f"client-{client}.yaml", f"client-{client}", "")
        self.job = job
        lake.write_key(folder / "aggregator.key")
        self.aggregator(threshold=2)

    def aggregator(self, **settings):
        settings["key_uri"] = str(self.folder / "aggregator.key")
        (self.folder / "aggregate.yaml").write_text(yaml.safe_dump(settings))

    def upload(self, client, name=None, released=None):
        return self.clients_job("upload", client, "--client", name or f"client-{client}", released=released)

    def play(self, dropped=lambda index: ()):
        """All rounds; `dropped` says whose messages a round lacks."""
        assert self.unmask().code == 0
        for index in range(len(plan_files(validated(self.job)).rounds)):
            for client in set(range(self.n_clients)) - set(dropped(index)):
                outcome = self.upload(client)
                assert outcome.code == 0, outcome.err
            assert self.aggregate().code == 0
            outcome = self.unmask()
            assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)


DROPPED = {0: (), 1: (4,), 2: (0, 5), 3: ()}


LLOYD = {
    "algorithm": "dp_lloyd",
    "dp_lloyd": {"domain": [-2.0, 7.0], "init": "feddp_init", "steps": 1},
    "lloyd": {"steps": 0},
}


@pytest.fixture(scope="module", params=[{}, LLOYD], ids=["feddp_kmeans", "dp_lloyd"])
def played(tmp_path_factory, request):
    """A run in which nobody, one client, and a third of the clients are missing."""
    parties = Parties(tmp_path_factory.mktemp("jobs"), **request.param)
    with recorded_draws(parties.draws):
        parties.summary = parties.play(dropped=DROPPED.get)
    return parties


def result_of(parties):
    tables = [pq.read_table(f"{parties.released}/result/{name}") for name in lake.RELEASED_FILES]
    return model_from_tables(*tables)


def test_releases_are_plain_sums_of_those_present_and_the_aggregators_noise(played):
    planned, model = plan_files(validated(played.job)), result_of(played)
    remaining, state = list(model.releases), planned.initial
    for index, each in enumerate(planned.rounds):
        releases = tuple(remaining.pop(0) for _ in each.plan.releases)
        present = [client for client in range(N_CLIENTS) if client not in DROPPED[index]]
        plain = each.statistic(lake.ClientBlock(np.concatenate(played.points[present])), state)
        released = np.concatenate([release.values.ravel() for release in releases])
        np.testing.assert_array_equal(released - played.draws[index], plain)
        state = each.step(state, releases)
    np.testing.assert_array_equal(model.centers, state.model().centers)
    assert len(played.draws) == len(planned.rounds) == 4


def test_the_result_says_what_fit_would_and_that_roles_were_apart(played):
    folder = pathlib.Path(played.summary["output"])
    assert {path.name for path in folder.iterdir()} == {
        *lake.RELEASED_FILES,
        *("privacy.json", "deployment.yaml", "report.html", "run.json"),
    }
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["trust"] == "masked"
    assert privacy["masked"]["roles"] == "jobs of their own"
    assert played.summary["epsilon"] == privacy["epsilon"] <= 2.0
    page = (folder / "report.html").read_text()
    assert "jobs of their own" in page
    # The clients' jobs have no ledger, and the aggregator's may have one.
    assert "unknown here: the aggregator counts the runs, if its job names a ledger" in page
    assert "no ledger" not in page


def test_the_exchange_holds_uniform_numbers_and_no_secret(played):
    words = played.words(4)
    assert looks_uniform(words, FRESH)
    assert len(np.unique(words)) == len(words)
    for path in pathlib.Path(played.exchange).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not spellings_in(content, SECRET), path
            assert not spellings_in(content), path
            assert b"lake-" not in content, path


def test_a_client_that_was_away_catches_up(played, tmp_path):
    """Releases follow from the exchange and the secret, so another client computes the same result."""
    released = str(tmp_path / "own")
    outcome = played.unmask(client=3, released=released)
    assert outcome.code == 0, outcome.err
    for name in lake.RELEASED_FILES:
        own = pathlib.Path(released, "result", name).read_bytes()
        assert own == pathlib.Path(played.released, "result", name).read_bytes()


def test_a_result_that_a_stopped_client_has_begun_is_written(played, tmp_path):
    """It follows from the sums; the client was asked to choose another run_id, which a run that is open has not."""
    (tmp_path / "own" / "result.partial-run").mkdir(parents=True)
    (tmp_path / "own" / "result.partial-run" / "releases.parquet").write_bytes(b"half")
    outcome = played.unmask(client=2, released=str(tmp_path / "own"))
    assert outcome.code == 0, outcome.err
    assert lake.released(tmp_path / "own" / "result") == lake.released(f"{played.released}/result")


def test_a_finished_run_stays_as_it_is(played):
    before = pathlib.Path(played.released, "result", "run.json").read_bytes()
    assert json.loads(played.unmask().out) == played.summary
    assert pathlib.Path(played.released, "result", "run.json").read_bytes() == before
    outcome = played.aggregate()
    assert outcome.code == 5
    assert "its sum is final" in outcome.err


def test_nothing_is_sent_to_a_closed_round(played):
    outcome = played.upload(4)
    assert outcome.code == 5


@pytest.fixture
def parties(tmp_path):
    return opened(Parties(tmp_path))


def messages_of(parties):
    return {path.name: path.read_bytes() for path in pathlib.Path(parties.exchange).rglob("messages/*")}


def test_a_retry_sends_the_same_bytes_whatever_the_data_are_by_then(parties):
    assert parties.upload(0).code == 0
    sent = messages_of(parties)
    assert parties.upload(0).code == 0
    assert messages_of(parties) == sent
    lake.write_files(parties.folder / "lake-0", [lake.table_of(parties.points[0] + 0.5)])
    assert parties.upload(0).code == 0
    assert messages_of(parties) == sent


def test_equal_data_of_two_clients_are_two_messages(parties):
    enroll(parties.folder / "client-0.yaml", "twin")
    assert parties.upload(0).code == parties.upload(0, name="twin").code == 0
    first, second = (parties.read(0, path) for path in Exchange(parties.exchange).message_files(0))
    assert first.senders != second.senders
    assert first.tags != second.tags
    assert not np.equal(first.values, second.values).any()


def test_a_second_present_set_is_refused(parties):
    """A party that hands out the sum of other clients for a round that was unmasked gets nothing for it."""
    for client in range(3):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == 0
    assert parties.unmask().code == 0
    (path,) = pathlib.Path(parties.exchange).glob("00_*/sum.parquet")
    path.unlink()
    pathlib.Path(parties.released, "00.parquet").unlink()
    (parties.folder / "exchange" / "01_weights" / "broadcast.json").unlink()
    assert parties.upload(3).code == 0
    assert parties.aggregate().code == 0
    outcome = parties.unmask()
    assert outcome.code == 5
    assert "must be written once" in outcome.err
    assert not pathlib.Path(parties.released, "00.parquet").exists()


def test_too_few_clients_do_not_close_a_round(parties):
    assert parties.upload(0).code == 0
    outcome = parties.aggregate()
    assert outcome.code == 5
    assert "fewer than 2 messages" in outcome.err
    assert not Exchange(parties.exchange).is_closed(0)
    assert json.loads(parties.unmask().out)["round"] == 0


GARBAGE = {
    "other columns": lambda table: table_bytes(table.rename_columns(["round", "tag", "sender", "values"])),
    "no table": lambda table: b"PAR1",
    "a sender twice": lambda table: table_bytes(pa.concat_tables([table, table])),
    "other words": lambda table: table_bytes(table.set_column(3, table.schema.field(3), pa.array([b"1234567"]))),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_malformed_message_is_left_out_by_name(parties, kind):
    """One party that sends garbage stops nobody, if the others are enough."""
    for client in range(2):
        assert parties.upload(client).code == 0
    exchange = Exchange(parties.exchange)
    path = pathlib.Path(exchange.message_files(0)[0])
    table = messages_to_table(parties.read(0, str(path)), exchange.plan().rounds[0])
    label = exchange._label(0, path.name)
    path.write_bytes(seal(GARBAGE[kind](table), exchange.aggregator_key(), bytes(32), label))
    outcome = parties.aggregate()
    assert (outcome.code, "left out: " in outcome.err) == (5, True)
    assert "fewer than 2 messages (threshold) have arrived" in outcome.err
    assert parties.upload(2).code == 0
    outcome = parties.aggregate()
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["left_out"] == ["00_outer_product/messages/client-0.sealed"]
    assert len(exchange.read_sum(0)[0].senders) == 2
    assert parties.unmask().code == 0


def test_messages_of_outsiders_are_left_out_by_name(parties):
    """A copy under another name, bytes of anybody, and nothing at all."""
    for client in range(2):
        assert parties.upload(client).code == 0
    path = pathlib.Path(Exchange(parties.exchange).message_files(0)[0])
    for name, raw in {"again": path.read_bytes(), "junk": b"junk", "nothing": b""}.items():
        path.with_name(f"{name}.sealed").write_bytes(raw)
    path.with_name("folder.sealed").mkdir()
    outcome = parties.aggregate()
    assert outcome.code == 0, outcome.err
    names = [each.rpartition("/")[2] for each in json.loads(outcome.out)["left_out"]]
    assert names == ["again.sealed", "junk.sealed", "nothing.sealed"]
    assert len(Exchange(parties.exchange).read_sum(0)[0].senders) == 2


@pytest.mark.parametrize("key", ["secret_uri", "masked", "released", "data"])
def test_the_aggregators_job_has_no_place_for_a_secret(parties, key):
    parties.aggregator(**{key: "secret"})
    outcome = parties.aggregate()
    assert outcome.code == 2
    assert f"{key} is not a setting" in outcome.err


def test_clients_of_other_settings_are_refused(parties):
    job = parties.job | {"n_clusters": 2}
    (parties.folder / "client-1.yaml").write_text(yaml.safe_dump(job))
    outcome = parties.upload(1)
    assert outcome.code == 5
    assert "This job differs from the job that opened the run in n_clusters." in outcome.err


def test_clients_that_know_other_releases_are_refused(parties, tmp_path):
    for client in range(2):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == parties.unmask().code == 0
    outcome = parties.upload(2, released=str(tmp_path / "elsewhere"))
    assert outcome.code == 5
    assert "--released must hold the releases of the 1 round before this one" in outcome.err


def test_jobs_before_the_run_is_open_are_refused(tmp_path):
    parties = Parties(tmp_path)
    for outcome in (parties.upload(0), parties.aggregate()):
        assert outcome.code == 5
        assert "no plan.json in " in outcome.err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"masked": {}}, "this job needs masked.secret_uri"),
        ({"masked": {"state_uri": None}}, "this job needs masked.state_uri"),
        ({"trust": "central", "masked": {}}, "trust must be masked"),
    ],
)
def test_jobs_of_other_trust_are_refused(parties, changes, sentence):
    masked = changes["masked"] and parties.job["masked"] | changes["masked"]
    (parties.folder / "client-0.yaml").write_text(yaml.safe_dump(parties.job | changes | {"masked": masked}))
    outcome = parties.upload(0)
    assert outcome.code == 2
    assert sentence in outcome.err


def test_two_holders_of_many_clients_each(tmp_path):
    """Client level: each job sends one message per client of its lake, split over files or not."""
    parties = Parties(tmp_path, unit="client")
    for holder in range(2):
        points, clients = lake.mixture(120, seed=holder), np.arange(120) % 12
        lake.write_files(
            tmp_path / f"lake-{holder}",
            [lake.table_of(p, c) for p, c in ((points[:60], clients[:60]), (points[60:], clients[60:]))],
        )
    assert parties.unmask().code == 0
    for index in range(4):
        for holder in range(2):
            outcome = parties.upload(holder)
            assert outcome.code == 0, outcome.err
        assert parties.aggregate().code == 0
        assert len(Exchange(parties.exchange).read_sum(index)[0].senders) == 24
        assert parties.unmask().code == 0
    assert result_of(parties).n_clusters == 3
    assert not [path for path in pathlib.Path(parties.released).iterdir() if path.name.startswith("client")]


@pytest.fixture
def own_keys():
    with lake.keys_of_runs():
        yield


@pytest.mark.usefixtures("own_keys")
def test_the_aggregator_charges_every_round_and_asks_first(tmp_path):
    parties = Parties(tmp_path)
    ledger = ledgers.new_ledger(tmp_path, Limit(epsilon=1e-3, delta=1e-6))
    about = {"ledger": ledger.path, "name": "homes", "unit": "record", "threshold": 2}
    parties.aggregator(**about)
    assert parties.unmask().code == 0
    assert parties.upload(0).code == 0
    refused = parties.aggregate()
    assert (refused.code, "data.name must be a data set with a limit, got homes" in refused.err) == (3, True)
    ledger.set_limit("homes", Limit(epsilon=2.0, delta=1e-6))
    assert parties.aggregate().code == 5
    assert ledgers.kinds(ledger)[2:] == ["reserve", "start", "void"]
    assert parties.upload(1).code == 0
    assert parties.aggregate().code == 0
    assert ledgers.kinds(ledger)[5:] == ["reserve", "start", "commit"]
    assert ledger.entries()[-1].run == "run/feddp_kmeans/outer_product~2"
    ledger.set_limit("homes", Limit(epsilon=0.1, delta=1e-6))
    assert parties.unmask().code == 0
    for client in range(2):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == 3


def test_clients_do_not_charge(tmp_path):
    parties = Parties(tmp_path, ledger=str(tmp_path / "ledger.sqlite"), data__name="homes")
    outcome = parties.unmask()
    assert (outcome.code, "ledger must be left out for this job" in outcome.err) == (2, True)


@pytest.mark.parametrize("missing", ["name", "unit"])
def test_an_aggregator_with_a_ledger_says_what_it_charges(tmp_path, missing):
    parties = Parties(tmp_path)
    about = {"ledger": str(tmp_path / "ledger.sqlite"), "name": "homes", "unit": "record"}
    parties.aggregator(**{name: value for name, value in about.items() if name != missing})
    outcome = parties.aggregate()
    assert (outcome.code, f"{missing} is required with a ledger" in outcome.err) == (2, True)
