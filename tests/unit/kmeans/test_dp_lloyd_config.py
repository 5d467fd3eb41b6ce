"""Settings of algorithm dp_lloyd: defaults, and what is refused in one sentence."""

import numpy as np
import pytest

from dapple_dp.schemas.choices import ClippingCenter, ClippingRule, LloydStart
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from dapple_dp.transforms.numerics.kmeans import structure
from tests.scenes import job_text, lake

SERVER = {"path": "server.parquet"}


def job(lloyd=None, **settings):
    """A job of algorithm dp_lloyd as plain data."""
    found = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": "lake", "features": ["a", "b"]},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": [-1.0, 1.0]} | (lloyd or {}),
    }
    for name, value in settings.items():
        section, _, key = name.rpartition("__")
        (found.setdefault(section, {}) if section else found)[key] = value
    return found


def test_the_domain_bounds_the_rows_and_the_start_is_private_by_default():
    config = validated(job())
    assert config.clipping.norm is ClippingRule.DOMAIN
    assert config.clipping.center is ClippingCenter.NONE
    options = config.dp_lloyd
    assert options.start is LloydStart.BEST
    assert options.starts_privately
    assert options.shrinks


def test_moves_are_shrunken_after_a_private_start():
    assert not validated(job({"init": "sphere_packing"})).dp_lloyd.shrinks


def test_a_job_survives_yaml():
    config = validated(job({"init": "sphere_packing", "domain": [0, 10], "steps": 4}, clipping={"norm": 3.0}))
    assert load_config(job_text.rendered(config)) == config
    assert config.dp_lloyd.domain == (0.0, 10.0)
    assert config.clipping.norm == 3.0


def test_bounds_of_columns_are_mapped_to_one_box_in_the_order_of_the_features():
    by_name = validated(job({"domain": {"b": [0, 1e6], "a": [17, 90]}}))
    listed = validated(job({"domain": [[17, 90], [0, 1e6]]}))
    for config in (by_name, listed):
        assert config.dp_lloyd.interval == (-1.0, 1.0)
        assert list(config.encodings) == ["a", "b"]
        assert (config.encodings["b"].lower, config.encodings["b"].upper) == (0.0, 1e6)
        assert load_config(job_text.rendered(config)) == config
    assert validated(job()).encodings == {}


BY_COLUMN = "dp_lloyd.domain must have one interval for each column of data.features and no other, got "
PAIR = "dp_lloyd.domain must be two finite numbers, the smaller one first and clearly apart"
WRONG_BOUNDS = [
    (job({"domain": {"a": [17, 90]}}), BY_COLUMN + "none for 'b'; use the names of data.features, exactly as written."),
    (job({"domain": {"a": [0, 1], "b": [0, 1], "c": [0, 1]}}), BY_COLUMN + "one for 'c'"),
    (job({"domain": {"a": [0, 1], "A": [0, 1]}}), BY_COLUMN + "none for 'b' and one for 'A'; use"),
    (job({"domain": {"A": [0, 1], "B": [0, 1]}}), BY_COLUMN + "none for 'a', 'b' and one for 'A', 'B'; use"),
    (job({"domain": {"a": [0, 1], "b": [0, 1], "A": [0, 2]}}), BY_COLUMN + "one for 'A'"),
    (
        job({"domain": {"caf\u00e9": [0, 1], "cafe\u0301": [0, 2]}}, data__features=["caf\u00e9", "b"]),
        BY_COLUMN + "none for 'b'",
    ),
    (job({"domain": [[0, 1]]}), BY_COLUMN + "1 for 2 columns"),
    (job({"domain": [[0, 1], [0, 1], [0, 1]]}), BY_COLUMN + "3 for 2 columns"),
    (job({"domain": {"a": [0, 1], "b": [float("nan"), 1]}}), PAIR),
    (job({"domain": {"a": [0, 1], "b": [1, 1]}}), PAIR),
    (job({"domain": {"a": [0, 1], "b": [2, 1]}}), PAIR),
    (job({"domain": [[0, 1], [0, float("inf")]]}), PAIR),
    (job({"domain": {"a": [0, 1], "b": [1e9, 1e9 + 1e-3]}}), PAIR),
    (job({"domain": {"a": [0, 1], "b": [0, 5e-324]}}), PAIR),
    (job({"domain": {}}), "dp_lloyd.domain must be a mapping of every column to its two numbers, got {}"),
    (job({"domain": {1: [0, 1], "b": [0, 1]}}), "dp_lloyd.domain must be a mapping of every column to its two"),
    (job({"domain": [[0, 1], [0, 1]]}, data__features="x"), "dp_lloyd.domain must be one pair of numbers for the list"),
    (
        job({"domain": [[0, 1], [0, 1]]}, encode={"a": {"kind": "bounds", "lower": 0, "upper": 1}}),
        "dp_lloyd.domain must be one pair of numbers if there is an encode section",
    ),
]


@pytest.mark.parametrize(("settings", "start"), WRONG_BOUNDS, ids=str)
def test_bounds_that_are_not_one_for_each_column_are_refused(settings, start):
    with pytest.raises(ConfigError) as caught:
        validated(settings)
    assert str(caught.value).startswith(start)


def test_a_column_bounded_twice_in_a_file_is_refused():
    with pytest.raises(ConfigError, match="a appears twice in its section"):
        load_config("dp_lloyd: {domain: {a: [0, 1], a: [0, 2]}}")


WRONG = [
    (job({"variant": "lloyd"}), "dp_lloyd.variant was removed; leave it out for fast; the others are "),
    (job({"domain": [1.0, -1.0]}), "dp_lloyd.domain must be two finite numbers, the smaller one first"),
    (job({"domain": [0.0, float("nan")]}), "dp_lloyd.domain must be two finite numbers, the smaller one first"),
    (job({"domain": [0.0]}), "dp_lloyd.domain must be a list of two numbers, got [0.0]; give the public interval"),
    (job({"domain": "unit"}), "dp_lloyd.domain must be a list of two numbers, got 'unit'"),
    (job({"steps": 0}), "dp_lloyd.steps must be 'auto' or an integer from 1 to 50, got 0; give the number of Lloyd"),
    (job({"steps": True}), "dp_lloyd.steps must be 'auto' or an integer from 1 to 50, got True"),
    (job({"setps": 3}), "dp_lloyd.setps is not a setting; did you mean dp_lloyd.steps?"),
    (job({"init": "feddp_init"}), "server_data is required for dp_lloyd.init feddp_init; give a server"),
    (job(clipping={"norm": "private"}), "clipping.norm must be domain or a number for algorithm dp_lloyd, got 'priv"),
    (job(clipping={"norm": "server_radius"}, server_data=SERVER), "clipping.norm must be domain or a number, and"),
    (job(clipping={"center": "server_mean"}, server_data=SERVER), "clipping.norm must be domain or a number, and"),
    (job(n_clusters={"max": 5, "choose": "elbow"}), "n_clusters must be an integer for algorithm dp_lloyd, got a se"),
    (job(lloyd__steps=2), "lloyd.steps must be 0 for algorithm dp_lloyd, got 2; use dp_lloyd.steps instead."),
    (job(privacy__allocation="paper"), "privacy.allocation must be tuned for algorithm dp_lloyd, got 'paper'"),
    (job(quality={"share": 0.02}), "quality isn't supported for algorithm dp_lloyd"),
    (job(feddp_kmeans={"space": "full"}), "feddp_kmeans may hold only restarts for algorithm dp_l"),
    (job() | {"dp_lloyd": None}, "dp_lloyd is required; give a section with domain for algorithm dp"),
    (job(algorithm="feddp_kmeans", clipping={"norm": 1.0, "center": "none"}), "dp_lloyd isn't supported for algori"),
    (
        job(algorithm="feddp_kmeans", dp_lloyd=None, clipping={"norm": "domain", "center": "none"}),
        "clipping.norm must be server_radius, private or a number for algorithm feddp_kmeans, got 'domain'; use",
    ),
    (job(privacy__unit="client", data__client_id="c"), "clipping.client_rows is required for privacy.unit client"),
]


@pytest.mark.parametrize(("data", "start"), WRONG)
def test_what_does_not_fit_is_refused_in_one_sentence(data, start):
    with pytest.raises(ConfigError) as caught:
        validated(data)
    assert str(caught.value).startswith(start)
    assert "\n" not in str(caught.value)


def test_typical_rows_of_clients_mean_nothing_where_rows_are_units(tmp_path):
    """The scatter of a start was divided by this many rows, which made its directions look narrow."""
    points = lake.mixture(300)
    path = lake.write_lake(tmp_path / "lake", points)
    settings = lake.job(path, lake.write_server(tmp_path / "server.parquet"), "record", algorithm="dp_lloyd", lloyd={})
    settings |= {"dp_lloyd": {"domain": [-8, 8], "init": "best"}, "clipping": {"norm": "domain", "center": "none"}}
    plain = lake.chain(lake.planned(settings), ClientBlock(points, None))
    settings["clipping"] = settings["clipping"] | {"client_rows": 10}
    other = lake.chain(lake.planned(settings), ClientBlock(points, None))
    np.testing.assert_array_equal(other.centers, plain.centers)


@pytest.mark.parametrize("ends", [[-1e60, 1e60], [0.0, 1e-60], [9e59, 1e60]])
def test_one_domain_of_all_features_has_the_range_of_norms(ends):
    assert validated(job({"domain": ends})).dp_lloyd.interval == tuple(ends)


@pytest.mark.parametrize("ends", [[0.0, 1.1e60], [-1e90, 0.0], [0.0, 9e-61], [-1e-148, 1e-148], [-1e100, 1e100]])
def test_analysis_of_a_wider_or_narrower_domain_could_overflow(ends):
    with pytest.raises(
        ConfigError, match=r"two numbers from -1e[+]60 to 1e[+]60, at least 1e-60 apart, or a pair for each"
    ):
        validated(job({"domain": ends}))
    scaled = validated(job({"domain": [ends, ends]})).dp_lloyd
    assert scaled.interval == (-1.0, 1.0)


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_structure_is_found_at_every_scale_of_a_domain(scale):
    centers = scale * np.array([[0.1, 0.1], [0.9, 0.9], [0.9, 0.8]])
    sizes, noise = np.array([500.0, 250.0, 250.0]), np.full((3, 2), 1e-3 * scale)
    offsets = centers - sizes @ centers / 1000.0
    covariance = (offsets * sizes[:, None]).T @ offsets / 1000.0 + 2e-3 * scale**2 * np.eye(2)
    assert structure.cut_pairs(centers, sizes, noise, covariance) == [(1, 2)]
    assert structure.n_found(centers, sizes, noise, covariance, 0) in (2, 3)
