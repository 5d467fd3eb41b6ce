"""Settings of algorithm dp_medians: defaults, and what is refused in one sentence."""

import pytest

from dapple_dp.schemas.choices import ClippingRule, LloydStart
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from dapple_dp.schemas.kmeans.medians_config import AUTO_MEDIAN_STEPS
from tests.scenes import job_text


def job(lloyd=None, **settings):
    """A job of algorithm dp_medians as plain data."""
    found = {
        "experimental": True,
        "algorithm": "dp_medians",
        "data": {"path": "lake", "features": ["a", "b"]},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": [-1.0, 1.0]} | (lloyd or {}),
    }
    return found | settings


def test_box_start_and_rounds_are_those_of_dp_lloyd():
    config = validated(job())
    assert config.clipping.norm is ClippingRule.DOMAIN
    assert config.dp_lloyd.start is LloydStart.BEST
    assert config.n_steps == AUTO_MEDIAN_STEPS
    assert validated(job({"steps": 3})).n_steps == 3
    assert validated(job({"domain": {"b": [0, 1e6], "a": [17, 90]}})).dp_lloyd.interval == (-1.0, 1.0)


def test_a_job_survives_yaml():
    config = validated(job({"init": "candidates"}))
    assert load_config(job_text.rendered(config)) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": {"max": 5, "choose": "elbow"}}, "n_clusters must be an integer for algorithm dp_medians"),
        ({"quality": {"share": 0.1}}, "quality isn't supported for algorithm dp_medians"),
        ({"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6, "allocation": "paper"}}, "must be tuned"),
        ({"clipping": {"norm": "private"}}, "must be domain or a number for algorithm dp_medians, got 'private'"),
        ({"tree": {"radius": 1.0}}, "tree isn't supported for algorithm dp_medians"),
        ({"dp_medians": {}}, "dp_medians was removed; leave it out: it was never better otherwise"),
        ({"epoch": {"name": "e"}}, "epoch was removed; use `dapple stream`"),
        ({"recurring": {"previous": "x", "memory": 4}}, "recurring.memory isn't supported for algorithm dp_medians"),
    ],
)
def test_what_it_does_not_keep_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        validated(job(**settings))
