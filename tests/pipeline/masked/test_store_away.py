"""A store that is away is waited for at every kind of read and write of a party; one that refuses access is not."""

import collections
import contextlib
import re
from unittest import mock

import botocore.exceptions
import pytest
from apache_beam.io.aws.clients.s3.messages import S3ClientError
from apache_beam.io.filesystem import BeamIOError

from dapple_dp.pipelines.masked import party_run
from dapple_dp.schemas.errors import AbsentError, StoreAwayError, StoreDeniedError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR
from dapple_dp.transforms.files.places import beam
from dapple_dp.transforms.files.stores import answered, is_away
from tests.scenes import lake, stores
from tests.scenes.separate_parties import SeparateParties

OPERATIONS = ("exists", "open", "create", "_list", "delete", "rename", "metadata")


def unreachable(*_):
    """Returns what Beam makes of a server that nobody can connect to."""
    try:
        raise botocore.exceptions.EndpointConnectionError(endpoint_url="http://away")
    except botocore.exceptions.BotoCoreError as error:
        raise S3ClientError(str(error), None) from error


def busy(*_):
    raise S3ClientError("Reduce your request rate.", 503)


def in_details(*_):
    raise BeamIOError("List operation failed", {"path": S3ClientError("internal", 500)})


def cut(*_):
    raise ConnectionResetError("reset")


FAULTS = (unreachable, busy, in_details, cut)


class Outages:
    """A store that is away twice for each role, operation and kind of file, and then answers."""

    def __init__(self):
        self.role = ""
        self.seen = collections.Counter()

    def ask(self, operation, path):
        kind = re.sub(r"\d\d_|north|east|[0-9a-f]{8,}", "", path.removeprefix(f"{stores.SCHEME}://"))
        key = (self.role, operation, kind)
        self.seen[key] += 1
        if self.seen[key] <= 2:
            FAULTS[len(self.seen) % len(FAULTS)]()

    @contextlib.contextmanager
    def there(self):
        with contextlib.ExitStack() as stack:
            for name in OPERATIONS:
                stack.enter_context(mock.patch.object(stores.Store, name, self._of(name, getattr(stores.Store, name))))
            made = beam.CONDITIONAL[stores.SCHEME]

            def put(path, content):
                self.ask("put once", path)
                made(path, content)

            stack.enter_context(mock.patch.dict(beam.CONDITIONAL, {stores.SCHEME: put}))
            yield self

    def _of(self, name, method):
        def asked(store, path, *args, **more):
            self.ask(name, path[0] if isinstance(path, list) else path)
            return method(store, path, *args, **more)

        return asked


def play(parties, outages, wait=60.0):
    """Calls the parties in turn, until all have ended; the summaries."""
    ended = {}
    for _ in range(30):
        for name in [each for each in parties.names if each not in ended]:
            outages.role = name if name in (AGGREGATOR, COLLECTOR) else "client"
            role = {AGGREGATOR: AGGREGATOR, COLLECTOR: "clients"}.get(name, "client")
            words = parties.words(name)
            patience = party_run.Patience(wait, 1.0, 1e9, lambda _: None)
            with contextlib.suppress(AbsentError):
                ended[name] = party_run.take_part(role, words[4 : len(words) - len(parties.flags)], patience)
        if len(ended) == len(parties.names):
            return ended
    raise AssertionError(f"all must end, got {ended.keys()}")


LLOYD = {"domain": [-2.0, 7.0], "init": "sphere_packing", "steps": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "masked", [{}, {"scheme": "pairwise", "threshold": 2, "dropout": 0.3}], ids=["secret", "pairwise"]
)
def test_every_party_waits_out_an_outage_at_each_of_its_reads_and_writes(tmp_path, masked):
    clients = ("north", "east", "south") if masked else ("north", "east")
    with stores.store() as root:
        parties = SeparateParties(
            tmp_path, clients, f"{root}bucket", masked, sender_rows=20 if masked else None, dp_lloyd=LLOYD
        )
        outages = Outages()
        with outages.there():
            ended = play(parties, outages)
        assert {name: each.get("output") for name, each in ended.items() if name != AGGREGATOR} == dict.fromkeys(
            [*clients, COLLECTOR], f"{parties.released}/result"
        )
        assert ended[AGGREGATOR]["left_out"] == {}
        assert not [name for name in stores.names() if "claim" in name]
    asked = {(role, operation) for role, operation, _ in outages.seen}
    every = {"exists", "open", "_list", "put once"}
    assert asked >= {(role, operation) for role in ("client", AGGREGATOR, COLLECTOR) for operation in every}
    assert {(AGGREGATOR, "delete"), (COLLECTOR, "create"), (COLLECTOR, "rename")} <= asked
    assert all(
        count > 2 for (_, operation, kind), count in outages.seen.items() if operation == "exists" and "plan" in kind
    )


@pytest.fixture
def parties(tmp_path):
    with stores.store() as root:
        yield SeparateParties(tmp_path, store=f"{root}bucket")


def called(parties, name, *flags):
    return lake.run_command(*parties.words(name, "--poll_seconds", "0.01", "--wait_minutes", "0.002", *flags))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["north", AGGREGATOR, COLLECTOR])
def test_a_store_that_stays_away_is_waited_for_as_long_as_for_a_party(parties, name, fault):
    with mock.patch.object(stores.Store, "exists", side_effect=fault):
        outcome = called(parties, name)
    assert outcome.code == 6
    assert outcome.err.count("waits for an answer from the store") == 1
    assert "an answer from the store didn't arrive within --wait_minutes 0.002" in outcome.lines[-1]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("name", ["north", AGGREGATOR, COLLECTOR])
def test_a_store_that_refuses_access_ends_the_party_with_a_sentence(parties, name, status):
    with mock.patch.object(stores.Store, "exists", side_effect=S3ClientError("Forbidden", status)):
        outcome = called(parties, name)
    assert (outcome.code, len(outcome.lines)) == (2, 1), outcome.err
    assert outcome.lines[0].startswith("dapple: The store denies access to testing-store://")


def test_no_credentials_are_no_outage():
    with pytest.raises(StoreDeniedError), answered("s3://bucket/file"):
        raise botocore.exceptions.NoCredentialsError
    with pytest.raises(StoreAwayError, match="run the same command again later"), answered("s3://bucket/file"):
        raise OSError(116, "Stale file handle")
    for error in (PermissionError(13, "no"), FileNotFoundError(2, "none"), S3ClientError("none", 404), ValueError("x")):
        with pytest.raises(type(error)), answered("s3://bucket/file"):
            raise error
    assert is_away(
        RuntimeError(
            "Traceback ...\ndapple_dp.schemas.errors.StoreAwayError: The store of x ... [while running 'Send']"
        )
    )
    assert not is_away(RuntimeError("dapple_dp.schemas.errors.ProtocolError: x"))
