"""Every sentence of registry entry and page that states a fact of the run is there if and only if the fact is so."""

import dataclasses
import html
import itertools
import re

import numpy as np
import pytest
import yaml

from dapple_dp.pipelines.kmeans.report import report_page
from dapple_dp.pipelines.kmeans.report.files import deployment
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.block import ClientBlock
from tests.scenes import lake, ledgers
from tests.scenes.protocol_jobs import settings_of

NOISE_BY, SCHEMES = ("aggregator", "both", "clients"), ("shared_secret", "pairwise")
FACTS = {
    r"pipeline is the trusted aggregator": lambda job: job["trust"] == "central",
    r"aggregator adds up masked messages": lambda job: job["trust"] == "masked",
    r"aggregator adds up masked messages and adds the noise": lambda job: job["noise_by"] in ("aggregator", "both"),
    r"so does the party that unmasks": lambda job: job["noise_by"] == "both",
    r"[Ee]ach sender adds its share": lambda job: job["noise_by"] == "clients",
    r"closeness_epsilon": lambda job: job["noise_by"] == "clients",
    r"[Ll]eft out of its sender's statistic": lambda job: job["noise_by"] == "clients",
    r"[Aa]dding or removing|add or remove|added or removed": lambda job: job["noise_by"] != "clients",
    r"not with the aggregator, who knows the noise": lambda job: job["noise_by"] == "aggregator",
    r"senders share masks in pairs": lambda job: job["scheme"] == "pairwise",
    r"senders hold the masks": lambda job: job["scheme"] == "shared_secret",
    r"They do not hold against": lambda job: job["trust"] == "masked",
    r"One job has all roles": lambda job: job["trust"] == "masked",
    r"server data, which the curator declares public": lambda job: job["server_data"] != "none",
    r"radius of the public server data": lambda job: job["clipping"]["norm"] == "server_radius",
    r"half the diagonal of the domain": lambda job: job["clipping"]["norm"] == "domain",
    r"how much data each public point stands for": lambda job: job["algorithm"] == "feddp_kmeans",
    r"[Ee]igenvector": lambda job: False,
    r"no exact count of rows": lambda job: "public_rows" not in job["data"],
    r"number of (rows|clients) is public": lambda job: "public_rows" in job["data"],
    r"all rows of one client": lambda job: job["privacy"]["unit"] == "client",
    r"counted together by a ledger": lambda job: "ledger" in job,
    r"on the same data is unknown": lambda job: "ledger" not in job,
    r"[Ee]ncodings are": lambda job: "encode" in job,
    r"of the noise \(ChaCha20": lambda job: job["trust"] == "central",
    r"of the noise and of the masks \(ChaCha20": lambda job: job["trust"] == "masked",
    r"of all shares that were added": lambda job: job["noise_by"] == "clients",
    r"and the same senders": lambda job: job["noise_by"] == "clients",
    r"clients by where their rows are": lambda job: job["privacy"]["unit"] == "client",
    r"units or clients\.": lambda job: job["privacy"]["unit"] == "client",
    r"ChaCha20 under a secret key\) from truly random ones": lambda job: True,
}


def masked_jobs():
    for noise_by, scheme in itertools.product(NOISE_BY, SCHEMES):
        corrupt = {"corrupt": 0.0} if (noise_by, scheme) == ("clients", "shared_secret") else {}
        section = {"noise_by": noise_by, "scheme": scheme, "threshold": 2} | corrupt
        yield pytest.param("record", True, {"trust": "masked", "masked": section}, id=f"{noise_by}-{scheme}")


BOX = {"clipping": {"norm": "domain", "center": "none"}}
JOBS = [
    pytest.param("record", True, {}, id="central"),
    pytest.param("client", True, {}, id="client"),
    pytest.param("record", True, {"data__public_rows": 300, "clipping__norm": "private"}, id="public rows"),
    pytest.param("record", False, {"algorithm": "central_tree", "tree": {"radius": 10.0}}, id="tree"),
    pytest.param("record", False, {"algorithm": "dp_lloyd", "dp_lloyd": {"domain": [-9.0, 9.0]}} | BOX, id="box"),
    pytest.param("record", False, {"algorithm": "dp_medians", "dp_lloyd": {"domain": [-9.0, 9.0]}} | BOX, id="medians"),
    pytest.param("record", False, settings_of(Algorithm.K_PROTOTYPES) | BOX, id="prototypes"),
    pytest.param("record", True, {"ledger": True, "data__name": "people"}, id="ledger"),
    *masked_jobs(),
]


def words_of(run_of):
    """All text of the entry and of the page."""
    planned, result = run_of
    entry = yaml.safe_dump(deployment(planned, result), width=10**6)
    page = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", report_page.render(planned, result).html, flags=re.S)
    return entry + re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", page)))


def run_of(folder, unit, with_server, settings):
    points = lake.mixture(300)
    path = lake.write_lake(folder / "lake", points, np.arange(300) // 10, codes=True)
    server = lake.write_server(folder / "server.parquet", lake.mixture(60, seed=99)) if with_server else None
    if settings.get("ledger"):
        settings = settings | {"ledger": ledgers.new_ledger(folder, ledgers.basic_limit(200.0, 1e-4), "people").path}
    job = lake.job(path, server, unit, **settings)
    if job["algorithm"] != "feddp_kmeans":
        del job["feddp_kmeans"]
    planned = lake.planned(job)
    offsets = np.arange(0, 301, 10) if unit == "client" else None
    return job, (planned, lake.finished(planned, ClientBlock(points, offsets)))


@pytest.mark.parametrize(("unit", "with_server", "settings"), JOBS)
def test_a_fact_is_stated_if_and_only_if_it_is_so(tmp_path, unit, with_server, settings):
    job, run = run_of(tmp_path, unit, with_server, settings)
    masked = job.get("masked", {"noise_by": None, "scheme": None})
    words, facts = words_of(run), {"trust": "central"} | job | masked
    wrong = {pattern for pattern, is_so in FACTS.items() if bool(re.search(pattern, words)) is not is_so(facts)}
    assert not wrong
    planned, result = run
    for says in {each.spec.meaning.tells for part in planned.plan.rounds for each in part.releases}:
        assert says in words
    assert result.privacy == planned.statement


def test_a_window_of_an_epoch_speaks_of_the_epoch(tmp_path):
    _, (planned, result) = run_of(tmp_path, "record", True, {})
    epoch = dataclasses.replace(planned.statement, epoch={"name": "week", "windows": 3})
    words = words_of((planned, result._replace(privacy=epoch)))
    assert "all 3 windows of epoch week together is charged once" in words
    assert "Rows of one window; further windows follow." in words
    assert "running again on the same data does" not in words
    assert "One snapshot of the data" not in words


def test_parties_of_their_own_trust_no_operator(tmp_path):
    section = {"noise_by": "clients", "scheme": "pairwise", "threshold": 2}
    _, (planned, result) = run_of(tmp_path, "record", True, {"trust": "masked", "masked": section})
    parties = planned.statement.with_roles("jobs of their own")
    words = words_of((planned, result._replace(privacy=parties)))
    assert "One job has all roles" not in words
    assert "One unit is a row of one party." in words
    assert "Rows of several parties; each reads its own in every round." in words
    assert "under a key of the run that each party has for itself." in words
    assert "more than 0.05 of the listed senders" in words
