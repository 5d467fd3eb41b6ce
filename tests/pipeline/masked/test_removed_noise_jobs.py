"""Layers of noise in excess, by jobs of their own: what comes off the sum, and who is refused that wants more off."""

import dataclasses
import io
import json
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.kmeans.plan.planned_fit import plan_fit
from pipelines.masked.clients_role import SHARES
from schemas.kmeans.fit_config import validated
from schemas.kmeans.model import model_from_tables
from schemas.masked.pairwise_messages import LAYER_BYTES, LETTER_BYTES, HandedOut, Leg, sent_from_table
from schemas.privacy.noise_shares import MOST_LAYERS
from tests.pipeline.masked import test_noise_share_jobs as split_jobs
from tests.pipeline.masked.test_noise_share_jobs import SplitParties, second_sum
from tests.pipeline.masked.test_pairwise_jobs import EVERYBODY, HOLDERS, SECRETS
from tests.scenes import lake
from tests.scenes.draws import recorded_layers
from transforms.masked import pairwise_legs
from transforms.masked.pairwise_files import PairwiseExchange
from transforms.masked.signing import signing_parties
from transforms.numerics.masked.sealed import private_key, unseal
from transforms.numerics.masked.shamir import SHARE_BYTES
from transforms.numerics.privacy.keystream import encode_label
from transforms.numerics.privacy.noise_layers import layer_keys, layers_from

pytestmark = pytest.mark.slow
REMOVED = split_jobs.SCHEMES["pairwise"] | {"excess_noise": "removed"}


class LayeredParties(SplitParties):
    """Three hospitals whose ten senders have layers in their shares."""

    def __init__(self, folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(split_jobs.SCHEMES, "pairwise", REMOVED)
            super().__init__(folder, "pairwise")


def exchange_of(parties):
    """The exchange as the collector reads it, signatures checked."""
    masked = yaml.safe_load((parties.folder / "job-collector.yaml").read_text())["masked"]
    return PairwiseExchange(parties.exchange, signing_parties(masked["parties"], masked["identity_uri"]))


def handed_out(parties, index):
    """What was handed out in a round, as the collector reads it."""
    exchange = exchange_of(parties)
    plan = exchange.plan()
    own, path = private_key(SECRETS[0], plan.nonce, SHARES), plan.rounds[index].path
    files = sorted(pathlib.Path(parties.released, f"{index:02d}_shares").glob("*.sealed"))
    opened = [unseal(exchange.handed_out(index, str(file)), own, encode_label(path, file.name)) for file in files]
    return [row for text in opened for row in sent_from_table(pq.read_table(io.BytesIO(text)), HandedOut, path)]


QUIET = {1: (2,)}
"""In the second round one of the ten senders is gone after it has sent its letters."""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    parties = LayeredParties(tmp_path_factory.mktemp("layers"))
    parties.drawn = []
    with recorded_layers(parties.drawn):
        assert parties.collect().code == 0
        for index in range(2):
            parties.leg()
            parties.leg()
            holders = [holder for holder in EVERYBODY if holder not in QUIET.get(index, ())]
            parties.leg(holders)
            parties.answers(holders)
            outcome = parties.collect()
            assert outcome.code == 0, outcome.err
    parties.summary = json.loads(outcome.out)
    return parties


def test_releases_are_plain_sums_and_what_is_kept_of_the_shares(played):
    """Of ten senders with keys nobody is gone, then one: base alone, then the base and one layer."""
    tables = [pq.read_table(f"{played.released}/result/{name}") for name in lake.RELEASED_FILES]
    planned, model = plan_fit(validated(played.job)), model_from_tables(*tables)
    law = planned.config.masked.shares
    counts, state, remaining = law.counts(10), planned.initial, list(model.releases)
    assert counts == (10, 9, 8, 7)
    found = {(plan.path, sender): (share, first) for plan, sender, _, share, first in played.drawn}
    for index, each in enumerate(planned.rounds):
        releases = tuple(remaining.pop(0) for _ in each.plan.releases)
        holders = [holder for holder in EVERYBODY if holder not in QUIET.get(index, ())]
        drawn = [own for (path, name), own in found.items() if path == each.plan.path and _of(name, holders)]
        n_kept = law.n_kept(len(drawn), 10)
        assert (len(drawn), n_kept) == ((10, 0), (9, 1))[index]
        noise = sum(
            share - layers_from(layer_keys(first, 3)[n_kept], n_kept + 1, each.plan, counts) for share, first in drawn
        )
        plain = sum(each.statistic(played.blocks[holder], state) for holder in holders)
        np.testing.assert_array_equal(np.concatenate([r.values.ravel() for r in releases]) - noise, plain)
        factor = (len(drawn) / counts[n_kept]) ** 0.5
        for release, plan in zip(releases, each.plan.releases, strict=True):
            assert release.plan.noise_multiplier == pytest.approx(plan.noise_multiplier * factor)
        state = each.step(state, releases)


def _of(name, holders):
    """Whether a sender belongs to one of these holders, by its name."""
    return any(f"holder-{holder}".encode() in name for holder in holders)


def test_the_result_says_what_was_removed_and_verifies(played):
    privacy = json.loads(pathlib.Path(played.summary["output"], "privacy.json").read_text())
    assert privacy["masked"]["shares"]["layers"] == MOST_LAYERS
    assert privacy["masked"]["excess_noise"] == "removed"
    verified = lake.run_command("verify", played.summary["output"])
    assert verified.code == 0, verified.err


def test_letters_to_holders_are_longer_and_nothing_handed_out_is_a_layer_that_is_kept(played):
    exchange = exchange_of(played)
    for index, n_kept in ((0, 0), (1, 1)):
        assert {len(each.sealed) for each in exchange.letters(index)} == {LETTER_BYTES + 3 * LAYER_BYTES}
        shares = handed_out(played, index)
        assert {len(each.share) for each in shares if each.present} == {2 * SHARE_BYTES}
        assert {len(each.share) for each in shares if not each.present} <= {SHARE_BYTES}
        firsts = [first for plan, _, _, _, first in played.drawn if plan.path == exchange.plan().rounds[index].path]
        kept = {key for first in firsts for key in layer_keys(first, 3)[:n_kept]}
        files = [path for path in pathlib.Path(played.folder).rglob("*") if path.is_file()]
        assert kept or n_kept == 0
        assert not any(key in path.read_bytes() for key in kept for path in files)


def test_tags_are_of_seeds_and_of_layers(played):
    sums = [exchange_of(played).read_sum(index)[0] for index in (0, 1)]
    assert {len(tag) for each in sums for tag in each.tags} == {32}


@pytest.fixture
def summed(tmp_path):
    """Parties whose first round has its sum."""
    parties = LayeredParties(tmp_path)
    assert parties.collect().code == 0
    parties.to_the_sum()
    return parties


def test_a_server_that_shows_two_lists_gets_no_layer_for_either(summed):
    """With one list a layer more is in excess than with the other."""
    folder, first, second = second_sum(summed)
    (folder / "sum.parquet").write_bytes(first)
    assert summed.upload(0).code == 0
    (folder / "sum.parquet").write_bytes(second)
    assert summed.clients_job("upload", 1, "--client", "holder-1", released=str(summed.folder / "apart")).code == 0
    for holder, released in ((0, summed.released), (1, str(summed.folder / "apart"))):
        outcome = summed.clients_job("upload", holder, "--client", f"holder-{holder}", released=released)
        assert outcome.code == 5
        assert "got a second one" in outcome.err or "got another one that" in outcome.err or "got other" in outcome.err
    assert not list(pathlib.Path(summed.folder).rglob("*_shares/*"))


def test_a_client_works_out_itself_which_layer_is_in_excess(summed, monkeypatch):
    """One whose code hands out a layer more than all others do: its shares are of another key, and are left out."""
    summed.leg(close=False)
    real = pairwise_legs.Masking.excess
    with monkeypatch.context() as patch:
        patch.setattr(pairwise_legs.Masking, "excess", lambda *given: real(*given) + 1)
        assert summed.upload(1).code == 0
    summed.leg((0, 2), close=False)
    outcome = summed.collect()
    assert outcome.code == 0, outcome.err


def test_shares_of_another_round_are_refused(summed):
    """What was handed out for the first round, shown again as that of the second."""
    summed.answers()
    assert summed.collect().code == 0
    summed.to_the_sum()
    summed.leg(close=False)
    shutil.copytree(pathlib.Path(summed.released, "00_shares"), pathlib.Path(summed.released, "01_shares"))
    outcome = summed.collect()
    assert outcome.code == 5
    assert "must be signed by holder-0 as shares of this run and round, got another file" in outcome.err
    assert not pathlib.Path(summed.released, "01.parquet").exists()


def test_a_client_that_keeps_its_layers_to_itself_stops_nobody_until_too_few_are_left(summed, monkeypatch):
    summed.leg(close=False)
    with monkeypatch.context() as patch:
        patch.setattr(pairwise_legs, "_octets", lambda opened: opened.share.astype("<u4").tobytes())
        assert summed.upload(0).code == 0
    summed.leg((1, 2), close=False)
    outcome = summed.collect()
    assert outcome.code == 5
    assert "neighbors of every client must hand out shares, got fewer; wait for more of them" in outcome.err
    assert not pathlib.Path(summed.released, "00.parquet").exists()


def test_a_run_whose_plan_says_other_layers_is_refused(summed):
    """Whoever opened the run would have others share fewer layers, or none."""
    job = summed.folder / "job-1.yaml"
    content = yaml.safe_load(job.read_text())
    content["masked"]["excess_noise"] = "kept"
    job.write_text(yaml.safe_dump(content))
    outcome = summed.upload(1)
    assert outcome.code == 5
    assert "the job must have the settings of the run's plan.json" in outcome.err
    plan = exchange_of(summed).plan()
    assert plan.shares.layers == MOST_LAYERS
    assert dataclasses.replace(plan, shares=dataclasses.replace(plan.shares, layers=0)).to_json() != plan.to_json()


def test_letters_of_a_length_that_no_letter_has_are_left_out(tmp_path):
    parties = LayeredParties(tmp_path)
    assert parties.collect().code == 0
    parties.leg()
    parties.leg(close=False)
    exchange = exchange_of(parties)
    assert exchange._letter_lengths(10) == {LETTER_BYTES, LETTER_BYTES + 3 * LAYER_BYTES}
    assert parties.aggregate().code == 0
    assert exchange.leg(0) is Leg.MESSAGES
    assert len(exchange.letters(0)) == 10 * 9 == sum(HOLDERS) * 9
