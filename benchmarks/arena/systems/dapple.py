"""Dapple as its users run it: `algorithm: auto`, given the box and any server data."""

TITLE = "dapple"
WHAT = (
    "`algorithm: auto` with `domain`: the rounds that the job plans (`PublicFit`), on rows in memory. For refusals, "
    "keys and ledgers attacks run the whole job, by the estimator `DPKMeans`."
)
NEEDS = ()
REPOSITORY = None
CLAIM = "(epsilon, delta)"
_PLANNED = {}


def fit(job, seed):
    import logging

    logging.disable(logging.WARNING)
    return _job(job) if job.door == "job" else _rounds(job, seed)


def _job(job):
    import os

    from dapple_dp import DPKMeans
    from dapple_dp.pipelines.ledger.store import Ledger
    from dapple_dp.schemas.privacy.charge import Limit

    if job.ledger is not None and not os.path.exists(job.ledger):
        Ledger(job.ledger).set_limit("arena", Limit(epsilon=1.001 * job.epsilon, delta=job.delta))
    common = {"epsilon": job.epsilon, "delta": job.delta, "domain": tuple(job.bounds), "ledger": job.ledger}
    found = DPKMeans(job.k, **common, data_name=None if job.ledger is None else "arena")
    found.fit(job.rows, **({} if job.server is None else {"server_data": job.server}))
    return {"centers": found.cluster_centers_, "noisy_sizes": found.noisy_sizes_}


def _rounds(job, seed):
    import hashlib

    import numpy as np

    from benchmarks.arena.stages import quiet
    from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.transforms.core import loop
    from dapple_dp.transforms.numerics.kernel import row_pass

    server = np.zeros((0, job.rows.shape[1])) if job.server is None else job.server
    terms = (job.k, job.epsilon, job.delta, *job.bounds, *server.shape, float(server.sum()))
    if terms not in _PLANNED:
        names = {"path": "rows", "features": [f"x{index}" for index in range(server.shape[1])]}
        privacy = {"unit": "record", "epsilon": job.epsilon, "delta": job.delta}
        settings = {"algorithm": "auto", "data": names, "n_clusters": job.k, "privacy": privacy}
        served = {} if job.server is None else {"server_data": {"path": "server"}}
        _PLANNED[terms] = PublicFit.of(validated(settings | served | {"dp_lloyd": {"domain": job.bounds}}), server)
    plan = _PLANNED[terms]
    key = np.random.default_rng().bytes(32) if seed is None else hashlib.sha256(f"{terms}{seed}".encode()).digest()
    row_pass.start()
    model = loop.simulate(plan.initial, quiet(plan.rounds, job.door), [ClientBlock(job.rows)], key).model()
    return {"centers": model.centers, "noisy_sizes": model.noisy_sizes}
