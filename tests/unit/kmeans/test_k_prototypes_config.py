"""Settings of algorithm k_prototypes: defaults, and what is refused in one sentence."""

import math

import pytest

from dapple_dp.schemas.choices import ClippingRule
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from dapple_dp.schemas.kmeans.prototypes_config import GAMMA
from dapple_dp.schemas.tables.encoding import Bounds, OneHot
from tests.scenes import job_text

CODES = {"sex": {"kind": "one_hot", "vocabulary": ["f", "m"]}, "ward": {"kind": "one_hot", "vocabulary": [1, 2, 3]}}
DATA = {"path": "lake", "features": ["age", "sex", "lab", "ward"]}


def job(own=None, **settings):
    """A job of algorithm k_prototypes as plain data."""
    found = {
        "experimental": True,
        "algorithm": "k_prototypes",
        "data": DATA,
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "encode": CODES,
        "k_prototypes": {"domain": {"age": [0, 100], "lab": [-1.0, 3.0]}} | (own or {}),
    }
    return found | settings


def test_the_domain_bounds_numbers_and_gamma_weighs_codes():
    config = validated(job())
    assert config.clipping.norm is ClippingRule.DOMAIN
    found = config.encodings
    assert list(found) == ["age", "sex", "lab", "ward"]
    assert {name: type(each) for name, each in found.items()} == {
        "age": Bounds,
        "sex": OneHot,
        "lab": Bounds,
        "ward": OneHot,
    }
    assert (found["age"].lower, found["age"].upper, found["age"].to.low) == (0.0, 100.0, -1.0)
    assert found["sex"].weight == pytest.approx(math.sqrt(GAMMA / 2))
    # A code that differs is as far as numbers that are a quarter of their domain, 2 here, apart.
    assert GAMMA == (0.25 * 2.0) ** 2
    assert validated(job({"gamma": 2})).encodings["ward"].weight == 1.0


def test_a_job_survives_yaml():
    config = validated(job({"gamma": 1.5}))
    assert load_config(job_text.rendered(config)) == config


def with_code(**code):
    return {"encode": CODES | {"sex": CODES["sex"] | code}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"own": {"domain": {"age": [0, 100]}}}, "must be in either k_prototypes.domain or encode .* got 'lab'"),
        (
            {"own": {"domain": {name: [0, 1] for name in ("age", "lab", "sex")}}},
            "got 'sex'; give numeric columns an interval",
        ),
        (
            {"own": {"domain": {name: [0, 1] for name in ("age", "lab", "x")}}},
            "got 'x'; give numeric columns an interval",
        ),
        ({"own": {"domain": [0, 1]}}, "k_prototypes.domain must be a mapping of every column of numbers"),
        ({"own": {"domain": {}}}, "k_prototypes.domain must be a mapping of every column of numbers, one or more"),
        ({"own": {"gamma": float("inf")}}, "k_prototypes.gamma must be"),
        ({"own": {"gamma": -1}}, "k_prototypes.gamma must be"),
        ({"own": {"gamma": 0}}, "k_prototypes.gamma must be"),
        (with_code(vocabulary="private"), "encode.sex.vocabulary must be 'server' or a non-empty list"),
        (with_code(vocabulary=[]), "encode.sex.vocabulary must be 'server' or a non-empty list"),
        (with_code(vocabulary=["f", None]), "encode.sex.vocabulary must be 'server' or a non-empty list"),
        (with_code(vocabulary=["f", "f"]), "encode.sex.vocabulary must be a list without duplicates"),
        ({"own": {"domain": {"age": [1, 0], "lab": [0, 1]}}}, "k_prototypes.domain must be two finite numbers"),
        ({"own": {"gamma": 3}}, "k_prototypes.gamma must be"),
        ({"own": {"steps": 2}}, "k_prototypes.steps"),
        (with_code(weight=2.0), "encode.sex must be kind one_hot with a vocabulary list and no weight"),
        (with_code(vocabulary="server"), "encode.sex must be kind one_hot with a vocabulary list"),
        ({"encode": CODES | {"age": {"kind": "bounds", "lower": 0, "upper": 1}}}, "encode.age must be kind one_hot"),
        (
            {"data": DATA | {"features": ["age"]}, "encode": {}, "own": {"domain": {"age": [0, 1]}}},
            "encode must have a column of codes for algorithm k_prototypes",
        ),
        ({"data": DATA | {"features": "x"}, "encode": {}}, "data.features must be a list of columns"),
        ({"n_clusters": {"max": 5, "choose": "elbow"}}, "n_clusters must be an integer for algorithm k_prototypes"),
        ({"quality": {"share": 0.1}}, "quality isn't supported for algorithm k_prototypes"),
        ({"lloyd": {"steps": 2}}, "lloyd.steps isn't supported for algorithm k_prototypes"),
        ({"server_data": {"path": "public"}}, "server_data isn't supported for algorithm k_prototypes"),
        ({"clipping": {"norm": 1.0}}, "clipping.norm must be domain, and clipping.center none"),
        ({"clipping": {"norm": "private"}}, "clipping.norm must be domain, and clipping.center none"),
        (
            {"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6, "allocation": "paper"}},
            "privacy.allocation and privacy.shares aren't supported for algorithm k_prototypes",
        ),
        ({"dp_lloyd": {"domain": [0, 1]}}, "dp_lloyd isn't supported for algorithm k_prototypes"),
        ({"recurring": {"previous": "out"}}, "doesn't support a warm start"),
        ({"k_prototypes": None}, "k_prototypes is required"),
        ({"algorithm": "dp_lloyd", "dp_lloyd": {"domain": [0, 1]}}, "k_prototypes isn't supported for algorithm"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        validated(job(**settings))
    assert len(str(caught.value).splitlines()) == 1
