"""Configs of fits without privacy, and the other jobs that may read the same file."""

import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import is_pooled
from dapple_dp.schemas.kmeans.jobs.model_job import load_prepare_config
from dapple_dp.schemas.kmeans.jobs.pooled_config import validated_pooled
from dapple_dp.schemas.trusted_zone.job_configs import load_assign_config, load_evaluate_config

BASE = {"experimental": True, "data": {"path": "lake", "features": "x", "client_id": "who"}, "n_clusters": 3}
OPTIMAL = BASE | {"algorithm": "optimal"}


def test_defaults():
    assert validated_pooled(OPTIMAL).seed == 0


@pytest.mark.parametrize("settings", [{"algorithm": "feddp_kmeans"}, {"algorithm": ["optimal"]}, {}, [], None, "x"])
def test_other_jobs_are_not_pooled(settings):
    assert not is_pooled(settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (OPTIMAL | {"privacy": {}}, "privacy isn't supported for algorithm optimal"),
        (OPTIMAL | {"optimal": {"starts": 1}}, "optimal was removed; leave it out: 20 runs on 20,000"),
        (OPTIMAL | {"clipping": {"norm": 1.0}}, "clipping is not a setting"),
        (OPTIMAL | {"n_clusters": {"max": 3, "choose": "elbow"}}, "n_clusters must be an integer, got "),
        (OPTIMAL | {"seed": -1}, "seed must be at least 0, got -1; give the seed of the starts, an integer >= 0."),
    ],
)
def test_bad_jobs_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ConfigError) as caught:
        validated_pooled(settings)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_other_jobs_read_the_same_file():
    assert load_prepare_config(yaml.safe_dump(OPTIMAL)).data.client_id == "who"
    assert load_prepare_config(yaml.safe_dump(OPTIMAL | {"prepare": {"shards": 3}})).prepare.n_shards == 3
    for wrong, said in (
        ({"shards": 0}, "prepare.shards must be"),
        (3, "prepare must be"),
        ({"x": 1}, "prepare.x is no"),
    ):
        with pytest.raises(ConfigError, match=f"^{said}"):
            load_prepare_config(yaml.safe_dump(OPTIMAL | {"prepare": wrong}))
    text = yaml.safe_dump(OPTIMAL | {"model": "out"})
    assert load_evaluate_config(text).data == load_assign_config(text).data == validated_pooled(OPTIMAL).data
    with pytest.raises(ConfigError, match=r"^clipping is not a setting"):
        load_evaluate_config(yaml.safe_dump(OPTIMAL | {"model": "out", "clipping": {}}))
