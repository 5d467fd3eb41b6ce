"""Digests of jobs: ledgers hold those of finished runs, and masks are labeled by them, so they must never change."""

import hashlib
import json

import pytest

from pipelines.kmeans.account import settings_digest
from schemas.kmeans.fit_config import load_config, validated
from schemas.kmeans.pooled_config import pooled
from schemas.settings import yaml_text
from schemas.settings.digest import config_digest
from schemas.trusted_zone.sweep_config import load_sweep_config

DATA = "data: {path: /lake, features: [age, hours], client_id: who, name: census}"
SERVER = "server_data: {path: /server.parquet}"
PRIVACY = "privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}"
CLIENT = "privacy: {unit: client, epsilon: 2, delta: 1e-6}"

JOBS = {
    "feddp_kmeans": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, n_clusters: 10, {PRIVACY}, "
    "clipping: {norm: server_radius}}",
    "feddp_kmeans in full": f"{{algorithm: feddp_kmeans, {DATA}, n_clusters: 3, "
    "privacy: {unit: client, epsilon: 0.5, delta: 1e-6, allocation: paper, "
    "shares: {outer_product: 0.2, weights: 0.2, sums: 0.45, counts: 0.15}}, "
    "clipping: {norm: 2, center: none, client_rows: 50}, lloyd: {steps: 2, share: 0.3}, quality: {share: 0.1}, "
    "feddp_kmeans: {restarts: 20, assignment: one_third, simplify: {w_min: 0.05, rounds: 4}, "
    "reduce_diameter: {w_min: 1, sigma_max: 0.5}}, prepare: {shards: 4}, keep_staging: true, key_uri: /key, "
    "ledger: /ledger.sqlite, seed: 7, dp_lloyd: null, tree: null}",
    "feddp_kmeans, masked and recurring": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, n_clusters: 4, {PRIVACY}, "
    "clipping: {norm: server_radius}, lloyd: {steps: 1}, trust: masked, "
    "masked: {scheme: pairwise, secret_uri: /secret, threshold: 3}, recurring: {previous: /last}}",
    "feddp_kmeans that leaves its shares open": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, n_clusters: 3, "
    "privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6, shares: auto}, clipping: {norm: 2}, "
    "plan: {assumed_rows: 3000}}",
    "feddp_kmeans that chooses and encodes": f"{{algorithm: feddp_kmeans, {DATA}, {SERVER}, "
    f"n_clusters: {{max: 20, choose: elbow}}, {PRIVACY}, clipping: {{norm: private, quantile: 0.9}}, "
    "encode: {age: {kind: standardize, from: server}, hours: {kind: one_hot, vocabulary: [1, 2]}}}",
    "feddp_kmeans that starts with the tree": f"{{algorithm: feddp_kmeans, {DATA}, n_clusters: 3, {PRIVACY}, "
    "tree: {radius: 2.0}, feddp_kmeans: {init: central_tree}, lloyd: {steps: 2}}",
    "central_tree": f"{{algorithm: central_tree, {DATA}, n_clusters: 3, {CLIENT}, tree: {{radius: 2, depth: 9, "
    "directions: random}, clipping: {client_rows: 5}, quality: {share: 0.1, max_distance: 3.0}, "
    "feddp_kmeans: {restarts: 20, simplify: null}, dp_lloyd: null}",
    "dp_lloyd": f"{{algorithm: dp_lloyd, {DATA}, n_clusters: 3, {PRIVACY}, dp_lloyd: {{domain: [-1.0, 1.0]}}}}",
    "dp_lloyd in full": f"{{algorithm: dp_lloyd, {DATA}, {SERVER}, n_clusters: 3, {CLIENT}, "
    "dp_lloyd: {variant: fast, init: feddp_init, domain: [0, 10], steps: 4, radius: constant, radius_factor: 0.5, "
    "post_process: truncate, update: plain, start_share: 0.4, client_radius: 0.3}, "
    "clipping: {norm: server_radius, center: server_mean, client_rows: 8}, lloyd: {steps: 0, share: 0.4}, "
    "feddp_kmeans: {init: central_tree, assignment: nearest}, quality: null, tree: null}",
    "server_lloyds": f"{{algorithm: server_lloyds, {DATA}, {SERVER}, n_clusters: 3, {PRIVACY}, "
    "clipping: {norm: 3}, lloyd: {steps: 3}, quality: {share: 0.3}, "
    "recurring: {previous: /last, warm_start: false}}",
    "sphere_packing": f"{{algorithm: sphere_packing, {DATA}, n_clusters: 3, {PRIVACY}, "
    "clipping: {norm: 10, center: none}, lloyd: {steps: 1}}",
}
SWEEP = f"""
{DATA}
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
    packed: {{algorithm: sphere_packing}}
    plain: {{algorithm: dp_lloyd, dp_lloyd: {{variant: lloyd, domain: [0, 1]}}}}
    optimal: {{algorithm: optimal}}
"""
POOLED = f"{{algorithm: k_fed, {DATA}, n_clusters: 3, k_fed: {{restarts: 3}}}}"

DIGESTS = {
    "feddp_kmeans": (
        "6e7a39fcf5400b63eaacf178dee3ca60a19800bb95ade829852760860b79ac97",
        "736dcf422d69b566610100fcc95a4dcf5fbf5836f424443f924c16bc13a2e781",
        "38b850487e837a09c53e5943123cb62069e5229eb5ffb9f15f408ec7a9bdab43",
    ),
    "feddp_kmeans in full": (
        "9c18ae299bf8076e55d1cc6ffa4698a2143a0b3be4fd0774a72912fc7ccdf479",
        "3ba04fa65d3b51db47faf883a1f06d4508411f6942dadb6d963b59a1a3bf0a02",
        "37ab25e227736a5349ee9dee9ba9aae3ed37b9679a27634602a53cccf9ab3c4a",
    ),
    "feddp_kmeans, masked and recurring": (
        "ee9ec9adc5160eb0b745ac9173963220bc5d30682cec6fea75fc85b546246318",
        "a103480967dadd312d4fda2a874083e97e4129d25fe0922d799ea9bcbf13a0f0",
        "ae9dcdee0899fe94fb7b6d476a0c248db50464b0de8bfd3da2cd8bfb3d5536eb",
    ),
    "feddp_kmeans that leaves its shares open": (
        "20caea239a2360e4ccf6ec6be8d611f89421f04f517e87fbb44d7fe297391761",
        "991f0dbbb1060d2d9b3e338f287ef1498a749c796d7204689ccac3c9cbddd1f8",
        "2c9cbdcc0b382a0f92d3779f07ad9a3ca7de6d07f31d1555d27a4e9dadbb2966",
    ),
    "feddp_kmeans that chooses and encodes": (
        "9e6fb49a11a4b801642731596b4cad1dd9ca912082d9a733b1dd5e858694050a",
        "d67d5e0136d93429749204f172e03795648e41bfa6ada928d6c38a140f7feeaa",
        "85656d98257c29e5840e4f5cfdae7a4e65877ed7d4ce3ad46b1d5b5e292920ff",
    ),
    "feddp_kmeans that starts with the tree": (
        "7567c64de3e7f601fefe042897d2e5e4ea94f541eb4ba57e203b8eb5b72d57b1",
        "12240dadb8271181be2a36796cd5d6cbeb2a7595b4476a5e352a538b72f18e7a",
        "fe8a7eb94216151f746ea58cdf218402c0544753c1fcfdd2e8fe1602692fd22a",
    ),
    "central_tree": (
        "539448bd895196ad9d1919af45390f613dfbbc2d2bf11e660904a87dda805de7",
        "66bf9205ae6e19602222d85b46e521748e0efe8252bdd033f4c190c362441b4a",
        "56ae2966896d8e84d279236b3da3c07dd791539be074faf6dcbf45c9a7f14822",
    ),
    "dp_lloyd": (
        "d1c62b68946aea900ed79046fff6fa4c4503c7d3e9f60d4962844150df850f2c",
        "98fbb9ffe44caf6c1f3330e88cd5162e074e66264d474e6c9b31600456778b36",
        "34d6031a58d6e8f4b7b2e5b9498a466ede1a465ee26dc87a6533a3503441fc6d",
    ),
    "dp_lloyd in full": (
        "67f61f11f7662385ea855efdd835ccf21067bedd50b992a558f1ac87a4c98329",
        "89f36985951d1cd601d8bc51b5a29e5b441139764bf6ff445d4740ee98247cca",
        "2afdbe37d39109bcd4fa28d308270da945e74c87bc469c3536bb13ba00ea8d40",
    ),
    "server_lloyds": (
        "c60ba1b3ac6165055a67a7c084c3cd043971080b35188759d0cea2e35d08e012",
        "5e985fbd66a935c804f68e0c1b638e9a9c836753afc791e66e9e9ac18522ee35",
        "1dca18a75046b6d3e79e676503aed05748e9905ce68b5a7a61ce7e80a77eb76f",
    ),
    "sphere_packing": (
        "1f948312be3d41aeb28affcaca26226f00c2f29a4a357326398b5d8ee76772a4",
        "d86d9fddda9bb22c55feef64baf2fbc6f0d0a15b52bd36b91938ae3e2c7f9bac",
        "a06c9d224c82669909a99a71585d316d117a288900841aee9e71148b064ca666",
    ),
}
"""Of the code before a job was a union: `config_digest`, that of a ledger, and that of a plain dump."""


def digests(text):
    config = load_config(text)
    dumped = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return config_digest(config), settings_digest(config), hashlib.sha256(dumped.encode()).hexdigest()


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_the_digests_it_always_had(name):
    assert digests(JOBS[name]) == DIGESTS[name]


def test_a_dump_is_the_same_job_again():
    for text in JOBS.values():
        config = load_config(text)
        assert validated(config.model_dump(mode="json")) == config
        assert validated(config.model_dump()) == config


def test_a_sweep_and_a_pooled_job_have_the_digests_they_always_had():
    assert load_sweep_config(SWEEP).digest == "a69423b25e54b38c36c6ba08a3ce6fb94caabd98e4f63dcd9ebb688b0a3f5f21"
    assert (
        config_digest(pooled(yaml_text.parse(POOLED)))
        == "c31002b1f31da7907f4f9cfb92cb1cb97462ede43de3510f6ece22b55ffd5af1"
    )
