"""`file://` is refused in one sentence wherever a path can stand; it ended in an unexpected ValueError."""

import pytest

from dapple_dp import api
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from tests.scenes import lake, ledgers


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return ledgers.Place(tmp_path_factory.mktemp("place"))


CASES = {
    "data.path": lambda job, url: {"data": job["data"] | {"path": url}},
    "server_data.path": lambda job, url: {"server_data": {"path": url}},
    "key_uri": lambda job, url: {"key_uri": url},
    "ledger": lambda job, url: {"ledger": url},
    "evaluation.path": lambda job, url: {"evaluation": {"path": url}},
    "recurring.previous": lambda job, url: {"recurring": {"previous": url}},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scheme", ["file://", "FILE://", " file://"])
def test_a_setting_with_it_is_refused(place, name, scheme):
    with pytest.raises(ConfigError, match=rf"^{name} must name a file of a local disk by its path alone"):
        check_stores(CASES[name](place.job, f"{scheme}/data/x"))


@pytest.mark.parametrize("name", ["data.path", "key_uri"])
def test_a_job_with_it_ends_in_one_sentence(place, name):
    outcome = place.fit("out", "run", **CASES[name](place.job, f"file://{place.lake}"))
    assert outcome.code == 2
    assert outcome.err.startswith(f"dapple: {name} must name a file of a local disk by its path alone, got file:///")
    assert not (place.folder / "out").exists()


@pytest.mark.parametrize("word", ["fit", "verify", "plan", "clean", "init"])
def test_a_word_with_it_ends_in_one_sentence(place, word):
    url = f"file://{place.folder}"
    config = place.words("out", "run")[2]
    words = {
        "fit": ("fit", "--config", config, "--output", f"{url}/out"),
        "verify": ("verify", url),
        "plan": ("plan", "--config", f"file://{config}"),
        "clean": ("clean", url),
        "init": ("init", "--data", f"{url}/lake", "--output", f"{place.folder}/new.yaml"),
    }[word]
    outcome = lake.run_command(*words)
    assert outcome.code == 2
    assert "by its path alone, got file:///" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_call_with_it_ends_in_one_sentence(place):
    config = validated(place.job | CASES["key_uri"](place.job, "file:///data/key") | {"ledger": None})
    with pytest.raises(ConfigError, match="key_uri must name a file of a local disk by its path alone"):
        api.fit(config)
