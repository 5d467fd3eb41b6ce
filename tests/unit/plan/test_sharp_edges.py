"""Which sharp edges are named for a job, and that each has its place on the page."""

import re

import pytest

from dapple_dp.pipelines.plan.sharp_edges import EDGES, PAGE, edges_of
from tests.scenes import lake
from tests.unit.test_docs_paths import ROOT

TEXT = (ROOT / "docs" / "sharp-edges.md").read_text()
TARGETS = re.findall(r"^\W*\((edge-[a-z-]+)\)=$", TEXT, re.MULTILINE)


def names(settings):
    return {each.name for each in edges_of(lake.fit_of(settings))}


@pytest.mark.parametrize("edge", EDGES, ids=lambda each: each.name)
def test_every_edge_has_its_target_on_the_page(edge):
    assert TARGETS.count(edge.anchor) == 1
    assert edge.sentence.endswith(".")


def test_the_page_is_named_by_its_title_and_by_no_file():
    assert TEXT.startswith(f"# {PAGE}\n")
    assert not any(".md" in each.sentence or "docs/" in each.sentence for each in EDGES)


def test_edges_follow_from_settings():
    assert names(lake.job("lake", "server")) == {"settings", "server-data", "again"}
    tree = {"algorithm": "central_tree", "tree": {"radius": 10.0}}
    client = names(lake.job("lake", None, "client") | tree)
    assert client == {"settings", "radius", "again", "client-id", "staging"}
    masked = lake.job("lake", "server", trust="masked", data__client_id="who", data__public_rows=9)
    assert names(masked) >= {"masked-in-one-job", "shared-secret", "noised-sums", "records-of-clients", "public-rows"}
    parties = lake.job("lake", "server", trust="masked", data__client_id="who", masked={"state_uri": "keys/state"})
    assert "masked-in-one-job" not in names(parties)


def window(unit, **contract):
    """The first window of a stream."""
    data = {"path": "lake", "features": "x", "client_id": "who", "name": "visits"}
    calendar = {"name": "e", "column": "dt", "first": "2026-01-01", "windows": 9, "window": "2026-01-01", "band": 7}
    settings = {"algorithm": "windows", "data": data, "n_clusters": 3, "ledger": "ledger.sqlite"}
    settings |= {"privacy": {"unit": unit, "epsilon": 1.0, "delta": 1e-6}, "dp_lloyd": {"domain": [0, 1]}}
    settings |= {"clipping": {"client_rows": 3}} if unit == "client" else {}
    return settings | {"recurring": {"previous": "first", "memory": 7}, "epoch": calendar | contract}


def test_a_stream_of_clients_has_a_roll():
    assert "roll" in names(window("client", max_windows=2, min_separation=7))
    assert "roll" not in names(window("record", once="made so"))


def test_every_edge_applies_to_some_job():
    jobs = (
        lake.job("lake", "server", "client", quality={"share": 0.1}, key_uri="key"),
        lake.job("lake", "server", trust="masked", data__client_id="who", data__public_rows=9),
        lake.job("lake", "server", clipping__norm="private", recurring={"previous": "out", "warm_start": False}),
        lake.job("lake", "server", trust="masked", masked={"noise_by": "clients", "corrupt": 0.0}),
        lake.job("lake", None) | {"algorithm": "central_tree", "tree": {"radius": 10.0}},
        {name: value for name, value in lake.job("lake", None).items() if name not in ("clipping", "feddp_kmeans")}
        | {"algorithm": "dp_lloyd", "dp_lloyd": {"domain": [0, 1]}},
        lake.job("lake", "server", data__features=["a"], encode={"a": {"kind": "standardize", "from": "server"}}),
        lake.job("lake", "server", data__partitions={"day": 1}, data__disjoint_partitions="one day each"),
        window("client", max_windows=2, min_separation=7),
    )
    assert set().union(*map(names, jobs)) == {each.name for each in EDGES}
