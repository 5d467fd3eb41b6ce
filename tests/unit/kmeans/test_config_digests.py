"""Digests of jobs: ledgers hold them, and masks are labeled by them, so they cover every setting."""

import hashlib
import json

import pytest

from dapple_dp.pipelines.kmeans.plan.fingerprint import settings_digest
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from dapple_dp.schemas.kmeans.jobs.pooled_config import validated_pooled
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.gone import with_defaults
from dapple_dp.schemas.trusted_zone.sweep_config import load_sweep_config

ROWS = "data: {path: /lake, features: [age, hours], client_id: who, name: census}"
DATA = f"experimental: true, {ROWS}"
SERVER = "server_data: {path: /server.parquet}"
PRIVACY = "privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}"
CLIENT = "privacy: {unit: client, epsilon: 2, delta: 1e-6}"

JOBS = {
    "feddp_kmeans": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, n_clusters: 10, {PRIVACY}, "
    "clipping: {norm: server_radius}}",
    "feddp_kmeans in full": f"{{algorithm: feddp_kmeans, {DATA}, n_clusters: 3, "
    "privacy: {unit: client, epsilon: 0.5, delta: 1e-6, allocation: paper}, "
    "clipping: {norm: 2, center: none, client_rows: 50}, lloyd: {steps: 2, share: 0.3}, quality: {share: 0.1}, "
    "feddp_kmeans: {restarts: 20}, key_uri: /key, "
    "ledger: /ledger.sqlite, seed: 7, dp_lloyd: null, tree: null}",
    "feddp_kmeans, masked and recurring": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, n_clusters: 4, {PRIVACY}, "
    "clipping: {norm: server_radius}, lloyd: {steps: 1}, trust: masked, "
    "masked: {scheme: pairwise, secret_uri: /secret, threshold: 3}, recurring: {previous: /last}}",
    "feddp_kmeans that leaves its shares open": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, n_clusters: 3, "
    "privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6, shares: auto}, clipping: {norm: 2}, "
    "plan: {assumed_rows: 3000}}",
    "feddp_kmeans that chooses and encodes": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, "
    f"n_clusters: {{max: 20, choose: elbow}}, {PRIVACY}, clipping: {{norm: private}}, "
    "encode: {age: {kind: standardize, from: server}, hours: {kind: one_hot, vocabulary: [1, 2]}}}",
    "central_tree": f"{{algorithm: central_tree, {DATA}, n_clusters: 3, {CLIENT}, tree: {{radius: 2, depth: 9}}, "
    "clipping: {client_rows: 5}, quality: {share: 0.1, max_distance: 3.0}, "
    "feddp_kmeans: {restarts: 20}, dp_lloyd: null}",
    "dp_lloyd": f"{{algorithm: dp_lloyd, {DATA}, n_clusters: 3, {PRIVACY}, dp_lloyd: {{domain: [-1.0, 1.0]}}}}",
    "dp_lloyd in full": f"{{algorithm: dp_lloyd, {DATA}, {SERVER}, n_clusters: 3, {CLIENT}, "
    "dp_lloyd: {init: feddp_init, domain: [0, 10], steps: 4}, "
    "clipping: {norm: server_radius, center: server_mean, client_rows: 8}, lloyd: {steps: 0, share: 0.4}, "
    "feddp_kmeans: {restarts: 20}, quality: null, tree: null}",
}
SWEEP = f"""
experimental: true
{ROWS}
{SERVER}
n_clusters: 3
{PRIVACY}
clipping: {{norm: 3.0}}
lloyd: {{steps: 1}}
sweep:
  epsilons: [0.5, 1]
  seeds: 1
  methods:
    feddp: {{algorithm: feddp_kmeans}}
    tree: {{algorithm: central_tree, tree: {{radius: 3.0}}}}
    fast: {{algorithm: dp_lloyd, dp_lloyd: {{domain: [0, 1]}}, clipping: {{center: none}}, lloyd: {{steps: 0}}}}
    optimal: {{algorithm: optimal}}
"""
POOLED = f"{{algorithm: optimal, {DATA}, n_clusters: 3}}"

CURATED = (
    {"plan": {"assumed_rows": 900}},
    {"deployment": {"approved_by": "the board"}},
    {"justification": {"clipping.norm": "no value is larger"}},
)


@pytest.mark.parametrize("name", JOBS)
def test_the_digest_of_a_job_is_that_of_its_plain_dump(name):
    config = load_config(JOBS[name])
    fields = type(config).model_fields
    names = {field.serialization_alias or name for name, field in fields.items()}
    dumped = config.model_dump(mode="json")
    assert dumped.keys() == names
    assert dumped["data"].keys() == {*type(config.data).model_fields, "except"} - {"excepted"}
    # A user who adds the word goes on with a run that had begun without it.
    del dumped["experimental"]
    # A section that came later counts where it is given.
    assert dumped["data"].pop("csv") is None
    assert dumped["data"].pop("missing") == {}
    assert dumped["masked"].pop("one_message") is None
    assert dumped.pop("preset", None) is None
    plain = json.dumps(with_defaults(dumped), sort_keys=True, separators=(",", ":"))
    assert config_digest(config) == hashlib.sha256(plain.encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "digests"),
    {
        "dp_lloyd": (
            "95fb137eac7f5351d38f7e33428eef67da1006df39312bd56b2d71b0ca2ab811",
            "b5543cb4c392d33ea1d5cc3dd790bc163e0f3b9762cd570f753ed338188281c7",
        ),
        "dp_medians": (
            "f4f258e6959197bf63f7ee64a271c681b2432d89eb5b8bbe0ed2976f8a288979",
            "575973263ac67102c29f44e599e7a309179f2d36efd43a2afc17f6039979f4af",
        ),
    }.items(),
)
def test_a_job_has_the_digests_that_it_had_before_there_were_tiers(name, digests):
    """So its ledger, its records of rounds and its masks know it: a run that had begun goes on."""
    job = {"algorithm": name, "data": {"path": "/lake", "features": ["age", "hours"]}, "n_clusters": 3}
    job |= {"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}, "dp_lloyd": {"domain": [-1.0, 1.0]}}
    config = validated(job | {"experimental": True})
    assert (config_digest(config), settings_digest(config)) == digests


def test_every_job_has_digests_of_its_own():
    configs = [load_config(text) for text in JOBS.values()]
    assert len({config_digest(each) for each in configs} | {settings_digest(each) for each in configs}) == 2 * len(JOBS)


@pytest.mark.parametrize("name", JOBS)
def test_defaults_that_are_written_out_change_no_digest(name):
    config = load_config(JOBS[name])
    written = validated(config.model_dump(mode="json"))
    assert (config_digest(written), settings_digest(written)) == (config_digest(config), settings_digest(config))


@pytest.mark.parametrize("given", CURATED, ids=lambda given: next(iter(given)))
def test_what_the_curator_says_is_part_of_the_job(given):
    plain = yaml_text.parse(JOBS["feddp_kmeans"])
    found = [validated(each) for each in (plain, plain | given)]
    assert len({config_digest(each) for each in found}) == len({settings_digest(each) for each in found}) == 2


def test_a_dump_is_the_same_job_again():
    for text in JOBS.values():
        config = load_config(text)
        assert validated(config.model_dump(mode="json")) == config
        assert validated(config.model_dump()) == config


def test_a_sweep_and_a_pooled_job_have_digests_of_what_they_run():
    sweep, pooled_job = load_sweep_config(SWEEP), yaml_text.parse(POOLED)
    assert sweep.digest == load_sweep_config(SWEEP).digest != load_sweep_config(SWEEP.replace("0.5", "0.6")).digest
    assert config_digest(validated_pooled(pooled_job)) == config_digest(
        validated_pooled(dict(reversed(pooled_job.items())))
    )
    assert config_digest(validated_pooled(pooled_job)) != config_digest(
        validated_pooled(pooled_job | {"n_clusters": 4})
    )
