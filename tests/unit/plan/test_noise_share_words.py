"""Sentences of a plan on noise that clients split: multiples of the planned variance, and shares that are all of it."""

import json

import pytest

from dapple_dp.pipelines.jobs.forewarnings import WHOLE_SHARES, forewarnings
from dapple_dp.pipelines.plan.plan_words import _shares
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from tests.scenes import lake

PAIRWISE = {"scheme": "pairwise", "noise_by": "clients", "threshold": 2}


@pytest.mark.parametrize(
    ("law", "factors"),
    [
        (ShareLaw(threshold=2, corrupt=0.05, dropout=0.3), (1.5385, 1.0769)),
        (ShareLaw(threshold=2, corrupt=0.0, dropout=0.3), (1.4286, 1.0)),
        (ShareLaw(threshold=2, corrupt=0.0, dropout=0.0), (1.0, 1.0)),
    ],
)
def test_factors_of_many_senders(law, factors):
    assert law.factors() == pytest.approx(factors, abs=1e-3)


def test_nobody_is_listed_for_a_shared_secret():
    assert ShareLaw(threshold=5).factors() is None


@pytest.mark.parametrize(
    ("section", "warned"),
    [
        ({"noise_by": "clients", "corrupt": 0.0}, True),
        ({"noise_by": "clients", "corrupt": 0.0, "threshold": 2}, False),
        ({"noise_by": "both"}, False),
        (PAIRWISE, False),
    ],
)
def test_shares_that_are_all_of_the_noise_are_warned_of(tmp_path, section, warned):
    config = validated(lake.job(str(tmp_path), "server", trust="masked", masked=section))
    assert (WHOLE_SHARES in forewarnings(config)) is warned


def test_the_words_of_each_kind():
    assert _shares(None) == []
    (secret,) = _shares({"threshold": 700, "dropout": None})
    assert "m / 700 times this variance" in secret
    (pairwise,) = _shares({"threshold": 2, "dropout": 0.3, "nobody_gone": 1.5385, "most_gone": 1.0769})
    assert "1.54 times this variance if nobody drops out, and 1.08 times if 30% do" in pairwise
    (few,) = _shares({"threshold": 2, "dropout": 0.1, "nobody_gone": 1.5201, "most_gone": 1.5199})
    assert few.endswith("a sum has 1.52 times this variance.")


def test_dapple_plan_says_the_variance(tmp_path):
    server = lake.write_server(tmp_path / "server.parquet")
    job = lake.job(str(tmp_path / "lake"), server, trust="masked", masked=PAIRWISE)
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    outcome = lake.run_command("plan", "--config", str(tmp_path / "job.yaml"), "--rows", "1000")
    assert outcome.code == 0, outcome.err
    assert "a sum has 1.54 times this variance if nobody drops out" in outcome.out
