"""One message per sender and round, whatever a path is called, whatever is tried again, wherever it comes from.

A retry from another folder once counted every row twice, because a sender was named by its path as it was spelled.
"""

import json
import os
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.masked.clients import Masking
from dapple_dp.transforms.masked.exchange_files import Exchange
from tests.pipeline.masked.test_masked_jobs import Parties
from tests.scenes import lake
from tests.scenes.parties import enroll, opened

pytestmark = pytest.mark.slow

ROWS = np.arange(48) // 12


@pytest.fixture
def parties(tmp_path):
    return opened(Parties(tmp_path))


def set_job(parties, client=0, **data):
    job = yaml.safe_load((parties.folder / f"client-{client}.yaml").read_text())
    job["data"] |= data
    (parties.folder / f"client-{client}.yaml").write_text(yaml.safe_dump(job))


def files_of(parties):
    return {path.name: path.read_bytes() for path in pathlib.Path(parties.exchange).rglob("messages/*")}


def senders_once_more(parties):
    """Senders of a party that has lost its state and is enrolled again: its message is formed again, too."""
    (path,) = map(pathlib.Path, Exchange(parties.exchange).message_files(0))
    first = parties.read(0, str(path)).senders
    path.unlink()
    shutil.rmtree(parties.folder / "state")
    enroll(parties.folder / "client-0.yaml", "client-0", "")
    assert parties.upload(0).code == 0
    assert parties.read(0, str(path)).senders == first
    return first


def spellings(parties):
    plain = f"{parties.folder}/lake-0"
    (parties.folder / "link").symlink_to(plain)
    return {
        "with a dot": f"{parties.folder}/./lake-0",
        "with a slash": plain + "/",
        "through its parent": f"{parties.folder}/lake-1/../lake-0",
        "by a link": str(parties.folder / "link"),
        "from here": os.path.relpath(plain),
        "doubled slashes": f"{parties.folder}//lake-0",
    }


@pytest.mark.parametrize(
    "spelling", ["with a dot", "with a slash", "through its parent", "by a link", "from here", "doubled slashes"]
)
def test_a_retry_under_another_spelling_is_no_second_message(parties, spelling):
    assert parties.upload(0).code == 0
    sent = files_of(parties)
    set_job(parties, path=spellings(parties)[spelling])
    outcome = parties.upload(0)
    assert outcome.code == 0, outcome.err
    assert files_of(parties) == sent
    assert len(set(senders_once_more(parties))) == 1


@pytest.mark.parametrize("layout", ["another file", "two row groups", "two files", "renamed", "other rows"])
def test_a_retry_with_rows_in_another_layout_is_the_first_message(parties, layout):
    """Not one part of a second message is taken beside the first."""
    assert parties.upload(0).code == 0
    sent = files_of(parties)
    folder, points = parties.folder / "lake-0", parties.points[0]
    table = lake.table_of(points + (0.5 if layout == "other rows" else 0.0))
    if layout == "two row groups":
        lake.write_files(folder, [table], 6)
    elif layout == "two files":
        lake.write_files(folder, [table[:6], table[6:]])
    elif layout == "another file":
        pq.write_table(lake.table_of(points), folder / "part-99.parquet")
    elif layout == "renamed":
        (folder / "part-00.parquet").rename(folder / "part-01.parquet")
    else:
        lake.write_files(folder, [table])
    assert parties.upload(0).code == 0
    assert files_of(parties) == sent


def test_another_party_under_the_same_name_is_refused(parties):
    assert parties.upload(0).code == 0
    sent = files_of(parties)
    job = yaml.safe_load((parties.folder / "client-1.yaml").read_text())
    job["masked"]["state_uri"] = str(parties.folder / "another-state")
    (parties.folder / "client-1.yaml").write_text(yaml.safe_dump(job))
    enroll(parties.folder / "client-1.yaml", "client-0")
    outcome = parties.upload(1, name="client-0")
    assert outcome.code == 5
    assert "client-0.sealed must be written once, got other content for it" in outcome.err
    assert files_of(parties) == sent


def by_client(parties, holder, kind, order=None):
    """A holder's rows of four clients, whose ids are of some kind."""
    points = lake.mixture(48, seed=3)
    ids = pa.array([kind(each) for each in ROWS.tolist()])
    table = lake.table_of(points).append_column("client_id", ids)
    rows = np.arange(48) if order is None else order
    lake.write_files(parties.folder / f"lake-{holder}", [table.take(pa.array(rows))], 12)


def test_whole_clients_are_named_by_their_ids_alone(tmp_path):
    """The same clients in another order of row groups, or in other files, are the same senders with other places."""
    parties = Parties(tmp_path, unit="client")
    by_client(parties, 0, lambda each: f"person {each}")
    assert parties.unmask().code == parties.upload(0).code == 0
    sent = files_of(parties)
    by_client(parties, 0, lambda each: f"person {each}", np.arange(48).reshape(4, 12)[::-1].ravel())
    (parties.folder / "lake-0" / "part-00.parquet").rename(parties.folder / "lake-0" / "part-77.parquet")
    outcome = parties.upload(0)
    assert outcome.code == 0, outcome.err
    assert files_of(parties) == sent
    assert len(set(senders_once_more(parties))) == 4


def test_one_client_id_at_two_parties_is_two_units_and_the_result_says_so(tmp_path):
    parties = Parties(tmp_path, unit="client")
    for holder in range(2):
        by_client(parties, holder, lambda each: each)
    assert parties.unmask().code == 0
    while "output" not in json.loads((outcome := parties.unmask()).out):
        for holder in range(2):
            assert parties.upload(holder).code == 0
        assert parties.aggregate().code == 0
    exchange, summary = Exchange(parties.exchange), json.loads(outcome.out)
    rounds = [exchange.read_sum(index)[0].senders for index in range(len(exchange.plan().rounds))]
    assert all(len(set(senders)) == 8 for senders in rounds)
    assert len({sender for senders in rounds for sender in senders}) == 8 * len(rounds)
    masked = json.loads(pathlib.Path(summary["output"], "privacy.json").read_text())["masked"]
    assert masked["one_unit"] == "a client id at one party: the same id at two parties is two units"
    assert "the same id at two parties is two units" in pathlib.Path(summary["output"], "report.html").read_text()


def test_a_client_whose_rows_are_in_two_places_cannot_send_twice():
    batch = MaskedMessages((b"a", b"b"), (b"1", b"2"), np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(ProtocolError, match="a sender must send one message per round, got two from the same sender"):
        MaskedMessages.joined([batch, batch])


def test_names_of_senders_are_apart():
    """Party, owner and place never run into each other, whatever they are called."""
    shards = [ShardRef("lake/a.parquet", 0, 5), ShardRef("lake/a.parquet", 1, 5), ShardRef("lake/b.parquet", 0, 5)]
    names = set()
    for client in ("", "a", "b", "ab"):
        for whole in (False, True):
            masking = Masking(secret_uri="", run="run", client=client, root="lake", whole_clients=whole)
            owners = [b"", b"a", b"b", b"ab"]
            names |= {masking.sender(shard, owner) for shard in shards for owner in owners}
    # By place 3 shards of 4 owners; whole clients have a name for each of 3 ids, and unnamed shards keep their place.
    assert len(names) == 4 * (3 * 4 + 3)


def test_places_do_not_depend_on_where_the_job_runs(tmp_path, monkeypatch):
    path = lake.write_files(tmp_path / "lake", [lake.table_of(lake.mixture(12))])
    masking = Masking(secret_uri="", run="run", client="a", root=path)
    wanted = masking.sender(ShardRef(f"{path}/part-00.parquet", 0, 12), b"")
    monkeypatch.chdir(tmp_path)
    relative = Masking(secret_uri="", run="run", client="a", root="lake")
    assert relative.sender(ShardRef("lake/part-00.parquet", 0, 12), b"") == wanted
    remote = Masking(secret_uri="", run="run", client="a", root="gs://bucket/lake")
    assert remote.sender(ShardRef("gs://bucket/lake/part-00.parquet", 0, 12), b"") == wanted
