"""Settings that left: a job that names one is told what to do instead, and no other job has another digest."""

import pytest

from dapple_dp.pipelines.kmeans.plan.fingerprint import settings_digest
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import is_pooled, validated
from dapple_dp.schemas.kmeans.jobs.pooled_config import validated_pooled
from dapple_dp.schemas.kmeans.jobs.stream_config import stream_config
from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.gone import GONE, GONE_VALUES
from tests.scenes import federation
from tests.scenes import reports as report_scenes
from tests.seams.settings import settings_of

BASE = {"experimental": True, "data": {"path": "/lake", "features": ["age", "hours"], "client_id": "who", "name": "d"}}
BASE |= {"n_clusters": 3, "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}}
BOX = {"dp_lloyd": {"domain": [0, 1]}}
JOBS = {
    "feddp_kmeans": BASE | {"clipping": {"norm": 2.0}, "server_data": {"path": "/s.parquet"}},
    "central_tree": BASE | {"tree": {"radius": 2}},
    "dp_lloyd": BASE | BOX | {"recurring": {"previous": "/p", "memory": 12}, "deployment": {"approved_by": "Ann"}},
    "dp_medians": BASE | BOX,
    "spherical": BASE
    | {"privacy": {"epsilon": 1.0, "delta": 1e-6}, "clipping": {"client_rows": 5}}
    | {"names": {"column": "t", "words": ["a", "b"]}},
    "optimal": {name: value for name, value in BASE.items() if name != "privacy"},
}
OWNERS = {"dp_lloyd": "dp_lloyd", "deployment": "dp_lloyd", "recurring": "dp_lloyd", "dp_medians": "dp_medians"}
OWNERS |= {
    "names": "spherical",
    "spherical": "spherical",
    "optimal": "optimal",
    "k_fed": "optimal",
    "tree": "central_tree",
}
STREAM = BASE | BOX | {"ledger": "/l", "algorithm": "dp_lloyd"}
STREAM |= {"stream": {"start": "/s", "name": "e", "column": "dt", "first": "2026-01-01", "windows": 3, "once": "x"}}

ENCODE = report_scenes.settings()


def checked(job):
    return validated_pooled(job) if is_pooled(job) else validated(job)


def checked_reports(job):
    return rejection.check_config(EncodeConfig, job)


def checked_training(job):
    return rejection.check_config(ClusteredFLConfig, job)


OTHERS = {"stream": (STREAM, stream_config), "reports": (ENCODE, checked_reports)}
OTHERS |= dict.fromkeys(("training", "clustering", "privacy.accountant"), (federation.job("/lake"), checked_training))


def named(name, value):
    """A job that is fine, the same with a setting, and what checks them."""
    section, _, leaf = name.rpartition(".")
    job, check = OTHERS.get(name) or OTHERS.get(section) or (job_of(section or leaf), checked)
    return job, job | ({leaf: value} if not section else {section: job.get(section, {}) | {leaf: value}}), check


def job_of(section):
    algorithm = OWNERS.get(section, "feddp_kmeans")
    return {"algorithm": algorithm} | JOBS[algorithm]


@pytest.mark.parametrize("name", GONE)
def test_a_job_that_names_it_is_told_what_to_do(name):
    job, wrong, check = named(name, 1)
    check(job)
    with pytest.raises(ConfigError) as caught:
        check(wrong)
    assert str(caught.value) == f"{name} was removed; {GONE[name].instead}."


@pytest.mark.parametrize(("name", "value"), GONE_VALUES)
def test_a_job_with_a_value_that_left_is_told_what_to_do(name, value):
    job, wrong, check = named(name, value)
    check(job)
    with pytest.raises(ConfigError) as caught:
        check(wrong)
    assert str(caught.value) == f"{name} no longer accepts {value}; {GONE_VALUES[name, value]}."


def test_what_left_is_in_no_schema():
    assert not GONE.keys() & (settings_of("fit") | settings_of("encode"))


DIGESTS = {
    "feddp_kmeans": [
        "40a96334cc0e4b17e79450a59193a698624d9d67e5cff26d915c846c5e032be7",
        "4da7a6134e8de6be85dad82c659465b887384cc57ee21936320540c82c2baf2d",
    ],
    "central_tree": [
        "95f07bb3d32fef6595f81f9429e62bb74a12951cff14ee4c339825f22d0e2e2b",
        "27e37c3038b01d5cc7e0b571caac00a0be1cbe680198e2fa7e732476ac8e4175",
    ],
    "dp_lloyd": [
        "62e28226720f6eed1df81f605929fbbd3082606aa242b712cf9afbf85709242f",
        "c467ec2bab2dfaa98b50d8ee23148b9427c567cf54e99ba4dfeb3f8a7af6f027",
    ],
    "dp_medians": [
        "3987d2976e4231c444900e23541c2b3545c436a7a3336eaaa83efba14f707e23",
        "d716da41a801fa6fcd7c1d167d3f49b7c4f7ac54436a60acfde8d5ce3ce03666",
    ],
    "spherical": [
        "e1d9a996d23fafb45dfa4c0623e5c0ac6e7daf040dba1705d9e9c1be8db40f92",
        "a1e9775dd1fca3ba3b81803b87be87227444b83c11c8c327d7885f94bb7ebabf",
    ],
}
"""Those of 0.2.0; jobs without privacy charge and mask nothing."""


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_a_job_that_never_named_them_has_the_digests_that_it_had(algorithm):
    """So what 0.2.0 charged or masked goes on."""
    job = checked({"algorithm": algorithm} | JOBS[algorithm])
    assert [config_digest(job), settings_digest(job)] == DIGESTS[algorithm]
