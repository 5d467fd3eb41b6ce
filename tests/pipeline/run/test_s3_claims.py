"""Claims on a server that speaks Amazon's protocol, one request after another: it looks and then writes, so races are
tested on the claim's logic in `tests/attacks/test_claims.py`."""

from unittest import mock

import pytest

from dapple_dp.pipelines.run.folder import RunFolder
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.files.claims import Claim, alone_at
from tests.scenes import lake, ledgers, object_store

pytestmark = pytest.mark.slow

pytest.importorskip("moto")
ROOT = f"s3://{object_store.BUCKET}"
OUT = f"{ROOT}/out"


@pytest.fixture
def store():
    with object_store.object_store() as found:
        yield found


@pytest.fixture
def place(store, tmp_path):
    found = ledgers.Place(tmp_path)
    found.job["key_uri"] = lake.write_key(tmp_path / "team.key")
    with lake.keys_of_runs():
        yield found


def _kinds(place):
    return [kind for kind in ledgers.kinds(place.ledger) if kind != "limit"]


def test_the_server_heeds_if_none_match(store):
    client = object_store.client()
    client.put_object(Bucket=object_store.BUCKET, Key="once", Body=b"one", IfNoneMatch="*")
    with pytest.raises(client.exceptions.ClientError) as raised:
        client.put_object(Bucket=object_store.BUCKET, Key="once", Body=b"two", IfNoneMatch="*")
    assert raised.value.response["Error"]["Code"] == "PreconditionFailed"
    assert object_store.raw("once") == b"one"


class _Old:
    """A store of a version that knows no conditions."""

    def __init__(self, app):
        self._app = app

    def __call__(self, environ, start_response):
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return self._app(environ, start_response)


def test_a_store_that_ignores_conditions_is_refused_before_the_charge(place, store):
    with mock.patch.object(store, "_app", _Old(store._app)):
        outcome = place.fit(OUT)
    assert (outcome.code, "overwrites an object that another run has created" in outcome.err) == (2, True), outcome.err
    assert object_store.names() == []
    assert _kinds(place) == []


@pytest.mark.parametrize(("run", "code", "who"), [("run", 3, "this run has"), ("other", 2, "another run has")])
def test_a_second_launcher_is_refused_while_the_first_one_works(place, run, code, who):
    outcomes, honest = [], RunFolder.seal

    def seal(folder, manifest):
        if not outcomes:
            outcomes.append(None)
            outcomes[0] = place.fit(OUT, run)
        return honest(folder, manifest)

    with mock.patch.object(RunFolder, "seal", seal):
        assert place.fit(OUT).code == 0
    assert outcomes[0].code == code, outcomes[0].err
    assert f"got {OUT}, which {who} claimed at 20" in outcomes[0].err
    assert f"; wait for it to end, or if it was killed, remove {OUT}.claim." in outcomes[0].err
    assert _kinds(place) == ["reserve", "start", "commit"]
    assert [name for name in object_store.names() if not name.startswith("out/")] == []


def test_a_run_that_was_killed_goes_on_when_its_claim_is_removed(place):
    with mock.patch.object(RunFolder, "seal", side_effect=KeyboardInterrupt), mock.patch.object(Claim, "give_up"):
        assert place.fit(OUT).code == 130
    assert "out.claim" in object_store.names()
    assert place.fit(OUT).code == 3
    object_store.client().delete_object(Bucket=object_store.BUCKET, Key="out.claim")
    assert place.fit(OUT).code == 0
    assert _kinds(place) == ["reserve", "start", "commit"]
    assert "out.claim" not in object_store.names()


def test_a_run_whose_claim_was_removed_publishes_nothing(place):
    honest = RunFolder.seal

    def seal(folder, manifest):
        object_store.client().delete_object(Bucket=object_store.BUCKET, Key="out.claim")
        return honest(folder, manifest)

    with mock.patch.object(RunFolder, "seal", seal):
        outcome = place.fit(OUT)
    assert (outcome.code, "The claim s3://lake/out.claim was removed" in outcome.err) == (2, True), outcome.err
    assert object_store.names("out/") == []
    assert _kinds(place) == ["reserve", "start"]


def test_claims_of_other_places_do_not_meet(store):
    beam_options([])
    for place in (f"{ROOT}/a", f"{ROOT}/b/", f"{ROOT}/"):
        folder = RunFolder(place, "r")
        with folder.claimed():
            with pytest.raises(ConfigError, match="must be used by one run at a time"):
                RunFolder(place.rstrip("/") + "/", "s").claimed().__enter__()
            assert len(object_store.names()) == 1
        folder.release()
        assert object_store.names() == []


def test_an_exchange_and_a_folder_of_messages_are_of_one_job(store):
    beam_options([])
    with alone_at(f"{ROOT}/exchange", "r", "--exchange", "there"):
        with pytest.raises(ConfigError, match="--exchange must be used by one run at a time, got there"):
            alone_at(f"{ROOT}/exchange", "s", "--exchange", "there").__enter__()
        assert object_store.names() == ["exchange/job.claim"]
    assert object_store.names() == []
