"""The `tree` section: what is accepted, what is refused, and how it bounds rows."""

import pytest

from dapple_dp.schemas.choices import Auto, ClippingCenter
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FedDPKMeansFit, load_config, validated
from tests.scenes import job_text


def job(**settings):
    base = {
        "experimental": True,
        "algorithm": "central_tree",
        "data": {"path": "lake", "features": "x", "client_id": "who"},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "tree": {"radius": 2.0},
    }
    return {name: value for name, value in (base | settings).items() if value is not None}


def test_the_ball_of_the_tree_bounds_the_rows():
    config = validated(job())
    assert (config.clipping.norm, config.clipping.center) == (2.0, ClippingCenter.NONE)
    assert (config.tree.depth, config.tree.n_levels) == (Auto.AUTO, 20)
    assert load_config(job_text.rendered(config)) == config


@pytest.mark.parametrize(
    "settings",
    [
        {"clipping": {"norm": 2, "center": "none"}},
        {"clipping": {"center": "server_mean"}, "server_data": {"path": "server"}},
        {"tree": {"radius": 1, "depth": 60}},
        {"tree": {"radius": 1, "center": [3, -4.5]}},
        {"n_clusters": {"max": 4, "choose": "elbow"}, "lloyd": {"steps": 2, "share": 0.4}},
        {"privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6}, "clipping": {"client_rows": 5}},
        {"feddp_kmeans": {"restarts": 20}, "data": {"path": "lake", "features": "x", "public_rows": 9}},
    ],
)
def test_allowed_settings_are_accepted(settings):
    config = validated(job(**settings))
    assert load_config(job_text.rendered(config)) == config


RADIUS = "tree.radius must be a number from 1e-60 to 1e60"
DEPTH = "tree.depth must be 'auto' or an integer from 1 to 60"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tree": None}, "tree is required; give a section with radius for algorithm central_tree."),
        (
            {"tree": None, "clipping": {"norm": 1.0, "center": "none"}},
            "tree is required; give a section",
        ),
        ({"tree": {}}, "tree.radius is required; give the public radius"),
        ({"tree": {"radius": 0}}, f"{RADIUS}, got 0; give the public radius"),
        ({"tree": {"radius": True}}, f"{RADIUS}, got True; give"),
        ({"tree": {"radius": "server_radius"}}, f"{RADIUS}, got 'server_radius'; give"),
        ({"tree": {"radius": float("inf")}}, f"{RADIUS}, got inf; give"),
        ({"tree": {"radius": 1.0, "depth": 0}}, f"{DEPTH}, got 0; give the number of half-spaces"),
        ({"tree": {"radius": 1.0, "depth": 61}}, f"{DEPTH}, got 61; give"),
        ({"tree": {"radius": 1.0, "depth": True}}, f"{DEPTH}, got True; give"),
        ({"tree": {"radius": 1.0, "levels": 3}}, "tree.levels is not a setting; the settings are radius, depth"),
        ({"tree": 3}, "tree must be a section of settings, got 3; give a section with radius"),
        ({"clipping": 3}, "clipping must be a section of settings, got 3; give"),
        (
            {"clipping": {"norm": 3.0}},
            "clipping.norm must equal tree.radius for algorithm central_tree, got 3.0 and 2.0",
        ),
        (
            {"clipping": {"norm": "private"}},
            "clipping.norm must equal tree.radius for algorithm central_tree, got priv",
        ),
        ({"clipping": {"center": "server_mean"}}, "clipping.center must be 'none' without server_data"),
        ({"feddp_kmeans": {"space": "full"}}, "feddp_kmeans may hold only restarts for algorithm"),
        (
            {"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6, "allocation": "paper"}},
            "privacy.allocation and privacy.shares aren't supported for algorithm central_tree",
        ),
        (
            {"privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6}},
            "clipping.client_rows is required for privacy.unit client",
        ),
        (
            {"algorithm": "feddp_kmeans", "clipping": {"norm": 1.0, "center": "none"}},
            "tree isn't supported for algorithm feddp_kmeans; remove it, or use algorithm central_tree.",
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ConfigError) as refused:
        validated(job(**settings))
    assert str(refused.value).startswith(sentence), refused.value


def test_other_algorithms_have_no_tree():
    config = validated(job(algorithm="feddp_kmeans", tree=None, clipping={"norm": 1.0, "center": "none"}))
    assert "tree" not in type(config).model_fields
    assert "tree" not in config.model_dump()
    parts = {name: getattr(config, name) for name in type(config).model_fields}
    with pytest.raises(ConfigError, match="tree is not a setting"):
        FedDPKMeansFit(**parts, tree={"radius": 1.0})


@pytest.mark.parametrize(
    "center", [[], 3.0, "origin", [1.0, float("nan")], [float("inf")], [1e61], [True], ["1"]], ids=str
)
def test_a_center_that_is_no_point_is_refused(center):
    with pytest.raises(ConfigError, match=r"tree\.center must be a list of numbers from -1e60 to 1e60, got"):
        validated(job(tree={"radius": 1.0, "center": center}))


def test_a_ball_has_one_center():
    by_server = {"clipping": {"center": "server_mean"}, "server_data": {"path": "server"}}
    with pytest.raises(ConfigError, match=r"clipping\.center must be none with a tree\.center"):
        validated(job(tree={"radius": 1.0, "center": [1.0]}, **by_server))


def test_a_center_is_dumped():
    assert validated(job()).tree.model_dump()["center"] is None
    assert validated(job(tree={"radius": 1.0, "center": [1.0]})).tree.model_dump()["center"] == (1.0,)
