"""Settings that are gone count with their last default: a job that never named them is the job it was in 0.2.0."""

import pytest

from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.settings.digest import config_digest, content_of

JOB = {
    "experimental": True,
    "n_clusters": 2,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
    "clipping": {"norm": 1.0},
    "data": {"path": "/rows", "features": ["a", "b"]},
}
DIGESTS = {
    "feddp_kmeans": "d0772f1bd94bedace83cfa3c16b11974b79c15522d269b7bd886c5bcbd5e533a",
    "dp_lloyd": "b4d25b7d2c13eaad3967ee6c6c96fece754ffc53addf1cbbb4e991e332b854f5",
    "dp_medians": "4c39446bf957d4838e0095420f3f52fcefa71ab954a5d4e4254277bfd3b0623f",
}
"""As version 0.2.0 computes them."""
MORE = {
    "feddp_kmeans": {"server_data": {"path": "/s.parquet"}},
    "dp_lloyd": {"dp_lloyd": {"domain": [-1.0, 1.0]}},
    "dp_medians": {"dp_lloyd": {"domain": [-1.0, 1.0]}},
}


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_a_job_that_never_named_what_is_gone_is_the_same_job(algorithm):
    config = validated(JOB | {"algorithm": algorithm} | MORE[algorithm])
    assert config_digest(config) == DIGESTS[algorithm]
    content = content_of(config)
    assert content["feddp_kmeans"]["init"] == "feddp_init"
    assert ("dp_medians" in content) is (algorithm == "dp_medians")


def test_a_job_that_names_another_value_of_what_stayed_is_another_job():
    config = validated(JOB | {"algorithm": "dp_lloyd"} | MORE["dp_lloyd"] | {"n_clusters": 3})
    assert config_digest(config) != DIGESTS["dp_lloyd"]
