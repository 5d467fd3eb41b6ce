"""Settings of a job that follows an earlier run."""

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from tests.scenes import job_text, lake

TREE = {"algorithm": "central_tree", "tree": {"radius": 8.0}, "clipping": {}, "server_data": "none"}


def follower(**settings):
    return lake.job("lake", "server.parquet", **{"recurring__previous": "last"} | settings)


def test_a_warm_start_is_the_default():
    config = validated(follower(lloyd__steps=1))
    assert config.starts_warm
    assert load_config(job_text.rendered(config)) == config
    assert not validated(follower(recurring__warm_start=False)).starts_warm
    assert not validated(lake.job("lake", "server.parquet")).starts_warm


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"lloyd\.steps must be at least 1 for a warm start, got 0;"),
        (
            {"lloyd__steps": 1, **TREE},
            r"algorithm central_tree doesn't support a warm start;",
        ),
        (
            {"lloyd__steps": 1, "n_clusters": {"max": 4, "choose": "elbow"}},
            r"n_clusters must be an integer for a warm start, got a section;",
        ),
        ({"lloyd__steps": 1, "clipping__norm": "private"}, r"clipping\.norm must be public for a warm start,"),
        ({"recurring__previous": ""}, r"recurring\.previous must"),
        ({"recurring__warm_start": "yes"}, r"recurring\.warm_start must"),
        ({"recurring__last": "x"}, r"recurring\.last"),
        ({"lloyd__steps": 1, "recurring__memory": 1}, r"recurring\.memory must"),
        (
            {"recurring__memory": 3, "recurring__warm_start": False},
            r"recurring\.memory isn't supported with recurring\.warm_start: false,",
        ),
    ],
)
def test_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        validated(follower(**settings))


def test_other_algorithms_may_follow_without_a_warm_start():
    config = validated(follower(**TREE, lloyd__steps=1, recurring__warm_start=False))
    assert config.recurring.previous == "last"


def test_the_short_memory_is_a_sixth():
    def short(**settings):
        return validated(follower(lloyd__steps=1, **settings)).recurring.short_length

    assert short(recurring__memory=30) == 5
    assert short(recurring__memory=2) == 1
