"""Split and mix keeps its epsilon and delta at every setting it accepts, and says in a sentence which it does not.

A search that stopped at 10^6 once gave the noise of a delta a thousand times larger than the one that was promised.
"""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from scipy import special

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.reports.split_parameters import collection_from_json
from dapple_dp.transforms.numerics.reports import split_and_mix, split_reports
from dapple_dp.transforms.numerics.reports.split_and_mix import SENSITIVITY, gaussian_stddev, plan_sums
from dapple_dp.transforms.reports.split_messages import one_copy
from tests.scenes import lake
from tests.scenes.report_uploads import arrived
from tests.scenes.reports import settings

EXTREMES = [1e-6, 1e-4, 0.01, 1.0, 20.0, 100.0]
N_CLIENTS = 40


def log_delta(stddev, epsilon):
    """Balle, Wang (2018), Theorem 8, by another way: the hockey stick as an integral in log space."""
    above = special.log_ndtr(0.5 / stddev - epsilon * stddev)
    below = epsilon + special.log_ndtr(-0.5 / stddev - epsilon * stddev)
    return float(special.logsumexp([above, below], b=[1.0, -1.0]))


@pytest.mark.parametrize("delta", [1e-30, 1e-10, 1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", EXTREMES)
def test_the_noise_keeps_its_delta_at_every_epsilon(epsilon, delta):
    found = gaussian_stddev(epsilon, delta)
    assert log_delta(found, epsilon) <= math.log(delta) + 1e-9
    # One part in ten thousand less would not do, so the search has not stopped at an end of its own.
    assert log_delta(0.9999 * found, epsilon) > math.log(delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 1e-7, 101.0, 1000.0, 1e300, math.inf, math.nan])
def test_an_epsilon_that_no_search_covers_is_refused(epsilon):
    with pytest.raises(ConfigError, match=r"privacy.epsilon must be from 1e-06 to 100"):
        plan_sums(1000, 8, 4, epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-31, 1.0, 2.0, -1e-6, math.nan])
def test_a_delta_that_no_search_covers_is_refused(delta):
    with pytest.raises(ConfigError, match=r"privacy.delta from 1e-30 to less than 1"):
        plan_sums(1000, 8, 4, 1.0, delta)


@pytest.mark.parametrize("n_clients", [-1, 0, 1, 2, 3, 18])
def test_fewer_clients_than_the_theorem_has_are_refused(n_clients):
    with pytest.raises(ConfigError, match=r"reports.min_batch must be at least 19 for split_and_mix"):
        plan_sums(n_clients, 8, 4, 1.0, 1e-6)
    assert plan_sums(19, 2, 1, 1.0, 1e-6).n_messages > 2


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("n_leaves", [1, 16])
def test_discrete_noise_is_charged(epsilon, n_leaves):
    """All coordinates' ratios of discrete to continuous noise, at the stddev in use, are paid for."""
    n_clients, n_features, delta = 1000, 4, 1e-6
    plan = plan_sums(n_clients, n_leaves, n_features, epsilon, delta)
    size, variance = n_leaves * (n_features + 1), plan.client_stddev**2 * n_clients
    tail = 5e-4 * 0.5 * delta
    exponent = epsilon - math.log(tail)
    lower = -size * math.log1p(-1.0 / (24.0 * variance))
    upper = size * (0.5 / variance + 3.0 * math.exp(-2.0 * math.pi**2 * variance))
    upper += (math.sqrt(exponent * size) + exponent) / variance
    left = log_delta(math.sqrt(variance) / SENSITIVITY, epsilon - lower - upper)
    assert left <= math.log((0.5 * delta - tail) * math.exp(-lower))


def test_noise_that_costs_more_than_there_is_is_refused():
    with pytest.raises(ConfigError, match="more than discrete noise costs"):
        plan_sums(1000, 1 << 12, 100, 1e-6, 0.5)


def public(**changes):
    content = settings(privacy={"unit": "client", "epsilon": 4.0, "delta": 1e-6}, tree__depth=2)
    content["reports"] = {"mode": "shuffle", "variant": "split_and_mix", "min_batch": N_CLIENTS}
    names = tuple(f"x[{index}]" for index in range(4))
    found = split_reports.design_split(EncodeConfig.model_validate(content), names, bytes(16))
    return dataclasses.replace(found, **changes)


def encoded_under(text):
    """What a device does with parameters that it was sent."""
    received = collection_from_json(text, "parameters.json")
    return split_reports.encode_clients(np.zeros((1, 4)), [b"a"], received, lake.KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: {"client_stddev": 0.99 * found.client_stddev},
        lambda found: {"n_messages": found.n_messages - 1},
        lambda found: {"guarantee": dataclasses.replace(found.guarantee, epsilon=1000.0)},
        lambda found: {"guarantee": dataclasses.replace(found.guarantee, epsilon=1e-9)},
        lambda found: {"guarantee": dataclasses.replace(found.guarantee, min_batch=3)},
        lambda found: {"guarantee": dataclasses.replace(found.guarantee, delta=0.0)},
    ],
)
def test_a_device_refuses_parameters_that_do_not_keep_their_promise(change):
    found = public()
    with pytest.raises(ConfigError):
        encoded_under(dataclasses.replace(found, **change(found)).to_json())


def shuffle(tmp_path, tables):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "parameters.json").write_text(public().to_json())
    for index, table in enumerate(tables):
        pq.write_table(table, tmp_path / "inbox" / f"{index}.parquet")
    reports = {"arrived": str(tmp_path / "inbox"), "parameters": str(tmp_path / "parameters.json")}
    (tmp_path / "shuffle.yaml").write_text(yaml.safe_dump({"reports": reports}))
    output = ("--output", str(tmp_path / "shuffled"))
    return lake.run_command("shuffle", "--config", str(tmp_path / "shuffle.yaml"), *output)


def sent(n_clients=N_CLIENTS):
    return arrived(lake.mixture(n_clients), public())


def of_client(table, index):
    size = public().messages_per_client
    return table.slice(index * size, size)


def shuffled(tmp_path):
    found = pq.read_table(tmp_path / "shuffled" / "reports.parquet")
    assert found.column_names == ["place", "share"]
    return found.sort_by([("place", "ascending"), ("share", "ascending")])


def test_an_upload_that_arrives_again_counts_once_and_cannot_be_picked_out(tmp_path):
    table = sent()
    again = of_client(table, 7)
    order = pa.array(np.random.default_rng(0).permutation(again.num_rows))
    outcome = shuffle(tmp_path, [table, again.take(order), again])
    assert outcome.code == 0, outcome.err
    assert f'"n_clients": {N_CLIENTS}' in outcome.out
    wanted = table.drop_columns(["upload"]).sort_by([("place", "ascending"), ("share", "ascending")])
    assert shuffled(tmp_path).equals(wanted)


def test_resent_uploads_do_not_fill_a_batch(tmp_path):
    table = sent(N_CLIENTS - 1)
    outcome = shuffle(tmp_path, [table, of_client(table, 0)])
    assert (outcome.code, f"got {N_CLIENTS - 1};" in outcome.err) == (2, True), outcome.err


def test_an_upload_of_which_a_part_arrives_twice_or_never_is_left_out(tmp_path):
    table = sent(N_CLIENTS + 3)
    parts = [of_client(table, index) for index in range(N_CLIENTS + 3)]
    parts[0] = parts[0].slice(1)
    parts[1] = pa.concat_tables([parts[1], parts[1].slice(0, 5)])
    outcome = shuffle(tmp_path, parts[:20] + parts[20:-1])
    assert outcome.code == 0, outcome.err
    wanted = pa.concat_tables(parts[2:-1]).drop_columns(["upload"])
    assert shuffled(tmp_path).equals(wanted.sort_by([("place", "ascending"), ("share", "ascending")]))


def test_two_uploads_that_differ_under_one_name_are_left_out(tmp_path):
    table = sent(N_CLIENTS + 1)
    other = split_reports.encode_clients(np.ones((1, 4)), [b"integers0"], public(), bytes(range(32)))
    names = of_client(table, 0).column("upload")
    false = pa.table([names, pa.array(other.places, pa.uint32()), pa.array(other.shares, pa.uint64())], table.schema)
    outcome = shuffle(tmp_path, [table, false])
    assert outcome.code == 0, outcome.err
    assert f'"n_clients": {N_CLIENTS}' in outcome.out


def test_messages_without_an_upload_are_refused(tmp_path):
    outcome = shuffle(tmp_path, [sent().drop_columns(["upload"])])
    assert (outcome.code, "'upload'" in outcome.err) == (2, True), outcome.err


def test_shares_that_are_equal_by_chance_stay():
    """A client may send one share twice at a place; only whole copies are copies."""
    places = np.repeat(np.arange(public().n_places), public().n_messages)
    shares = np.zeros(len(places), dtype=np.int64)
    once = split_and_mix.Messages(places, shares)
    assert len(one_copy(once, public())) == len(places)
    twice = split_and_mix.Messages(np.repeat(places, 2), np.repeat(shares, 2))
    assert len(one_copy(twice, public())) == len(places)
    assert one_copy(split_and_mix.Messages(places[:-1], shares[:-1]), public()) is None
