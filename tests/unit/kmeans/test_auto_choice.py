"""`algorithm: auto`: the rule of docs/start/which-protocol.md, row by row, and what it refuses."""

import json

import pytest

from dapple_dp.estimator.dp_kmeans import DPKMeans
from dapple_dp.estimator.job_of_parameters import Place, job_of
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated

BASE = {
    "experimental": True,
    "algorithm": "auto",
    "data": {"path": "lake", "features": ["a", "b"]},
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
}
SERVER = {"server_data": {"path": "server"}}
BOX, BALL = {"dp_lloyd": {"domain": [0, 4]}}, {"tree": {"radius": 2}}
BY_COLUMN = {"dp_lloyd": {"domain": {"a": [0, 1], "b": [0, 9]}}}

RULE = [
    (SERVER, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BALL, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX, ("dp_lloyd", "domain", (0.0, 4.0))),
    (SERVER | BOX | BALL, ("dp_lloyd", 2.0, (-2.0, 2.0))),
    (SERVER | BOX | {"quality": {}}, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX | {"lloyd": {"steps": 1}}, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX | {"n_clusters": {"max": 5, "choose": "elbow"}}, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX | {"feddp_kmeans": {"restarts": 21}}, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX | {"preset": "published"}, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX | {"clipping": {"norm": "server_radius"}}, ("feddp_kmeans", "server_radius", None)),
    (SERVER | BOX | {"clipping": {"norm": 3.0, "center": "server_mean"}}, ("feddp_kmeans", 3.0, None)),
    (SERVER | BOX | {"clipping": {"norm": 1.5}}, ("dp_lloyd", 1.5, (0.0, 4.0))),
    (SERVER | {"clipping": {"norm": 3.0}}, ("feddp_kmeans", 3.0, None)),
    (BOX, ("dp_lloyd", "domain", (0.0, 4.0))),
    (BY_COLUMN, ("dp_lloyd", "domain", {"a": (0.0, 1.0), "b": (0.0, 9.0)})),
    (BALL, ("dp_lloyd", 2.0, (-2.0, 2.0))),
    ({"clipping": {"norm": 3}}, ("dp_lloyd", 3.0, (-3.0, 3.0))),
    (BOX | BALL, ("dp_lloyd", 2.0, (-2.0, 2.0))),
    (BOX | {"tree": {"radius": 2.9}}, ("dp_lloyd", "domain", (0.0, 4.0))),
    (BY_COLUMN | {"tree": {"radius": 4.6}}, ("dp_lloyd", "domain", {"a": (0.0, 1.0), "b": (0.0, 9.0)})),
    (BY_COLUMN | {"tree": {"radius": 4.5}}, ("dp_lloyd", 4.5, (-4.5, 4.5))),
    (BOX | {"clipping": {"norm": 1.5}}, ("dp_lloyd", 1.5, (0.0, 4.0))),
    (BALL | {"quality": {}}, ("central_tree", 2.0, None)),
    (BALL | {"n_clusters": {"max": 5, "choose": "elbow"}}, ("central_tree", 2.0, None)),
    (BALL | {"lloyd": {"steps": 1}}, ("central_tree", 2.0, None)),
    ({"tree": {"radius": 2, "center": [1, 1]}}, ("central_tree", 2.0, None)),
    ({"clipping": {"norm": "private"}}, ("feddp_kmeans", "private", None)),
]


def chosen(more):
    config = validated(BASE | more)
    return str(config.algorithm), config.clipping.norm, getattr(getattr(config, "dp_lloyd", None), "domain", None)


@pytest.mark.parametrize(("more", "expected"), RULE)
def test_the_rule_goes_by_what_is_public(more, expected):
    assert chosen(more) == expected


@pytest.mark.parametrize("more", [each for each, _ in RULE])
def test_the_rule_does_not_look_at_the_budget_or_the_rows(more):
    others = {"data": BASE["data"] | {"path": "another"}, "privacy": BASE["privacy"] | {"epsilon": 0.01}, "seed": 5}
    assert chosen(more) == chosen(more | others)


def of_estimator(more):
    """The algorithm of `DPKMeans` with the parameters that say what a job says."""
    sections = {name: dict(section) for name, section in more.items() if isinstance(section, dict)}
    lloyd, tree, clipping = (sections.pop(name, {}) for name in ("dp_lloyd", "tree", "clipping"))
    bounds = {"norm": tree.pop("radius", None)} | clipping
    if bounds["norm"] is not None:
        # A job whose norm comes without a center measures it from the origin, or from what auto takes.
        bounds = {"center": "none"} | bounds
    renamed = {{"norm": "clipping_norm"}.get(name, name): value for name, value in bounds.items()}
    parameters = {"n_clusters": more.get("n_clusters", BASE["n_clusters"]), "domain": lloyd.pop("domain", None)}
    settings = sections | {"dp_lloyd": lloyd, "tree": tree}
    settings = {name: settings[name] for name in settings if name not in ("server_data", "n_clusters")}
    settings = {name: section for name, section in settings.items() if section or name not in ("dp_lloyd", "tree")}
    estimator = DPKMeans(**parameters, **renamed, epsilon=1.0, delta=1e-6, settings=settings or None)
    place = Place("lake", "server" if "server_data" in more else None, ("a", "b"), None)
    return str(job_of(estimator.get_params(deep=False), place).algorithm)


@pytest.mark.parametrize(("more", "expected"), [each for each in RULE if "preset" not in each[0]])
def test_the_estimator_chooses_what_the_job_of_the_same_settings_chooses(more, expected):
    """All but a preset, for which it has no parameter."""
    assert of_estimator(more) == expected[0]


@pytest.mark.parametrize(
    ("more", "algorithm"),
    [
        ({"allocation": "paper", "settings": {"experimental": True}}, "feddp_kmeans"),
        ({"lloyd_steps": 2}, "feddp_kmeans"),
        ({"clipping_norm": 2.0}, "feddp_kmeans"),
        ({"clipping_norm": 2.0, "center": "none"}, "dp_lloyd"),
        ({"center": "none"}, "dp_lloyd"),
    ],
)
def test_a_norm_about_server_rows_and_rounds_after_them_keep_the_estimator_out_of_the_box(more, algorithm):
    estimator = DPKMeans(3, domain=(0, 4), epsilon=1.0, delta=1e-6, **more)
    place = Place("lake", "server", ("a", "b"), None)
    assert job_of(estimator.get_params(deep=False), place).algorithm == algorithm


def test_a_list_column_has_no_width_before_it_is_read_so_that_the_ball_is_taken():
    assert chosen(BOX | {"tree": {"radius": 99}, "data": {"path": "lake", "features": "x"}}) == (
        "dp_lloyd",
        99.0,
        (-99.0, 99.0),
    )


WIDE = {
    "experimental": True,
    "data": {"path": "lake", "features": ["a", "b", "c", "d"], "client_id": "who"},
    "n_clusters": 4,
}
CLIENTS = {"privacy": BASE["privacy"] | {"unit": "client"}, "clipping": {"client_rows": 9}}


@pytest.mark.parametrize(
    ("more", "init"),
    [
        (BOX, None),
        (BOX | SERVER, "candidates"),
        (BOX | SERVER | {"recurring": {"previous": "none"}}, None),
        (BOX | {"n_clusters": 4}, None),
        (BOX | WIDE, "candidates"),
        (BALL | WIDE, "candidates"),
        (BOX | WIDE | {"n_clusters": 3}, None),
        (BOX | WIDE | {"n_clusters": 3} | CLIENTS, "candidates"),
        (BOX | WIDE | {"data": {"path": "lake", "features": "x"}}, "candidates"),
        (WIDE | {"dp_lloyd": {"domain": [0, 4], "init": "best"}}, "best"),
        (BOX | WIDE | {"recurring": {"previous": "none"}}, None),
    ],
)
def test_candidates_are_the_start_where_a_grid_over_the_domain_is_not_known_to_do(more, init):
    config = validated(BASE | more)
    assert config.dp_lloyd.init == init
    if init == "candidates":
        assert config.dp_lloyd.steps == "auto"


def test_rounds_are_given_where_the_job_leaves_them_out():
    assert validated(BASE | SERVER).lloyd.steps == 1
    assert validated(BASE | SERVER | {"lloyd": {"steps": 0}}).lloyd.steps == 0
    assert validated(BASE | BALL).dp_lloyd.steps == 2
    assert validated(BASE | {"dp_lloyd": {"domain": [0, 1], "steps": 5}}).dp_lloyd.steps == 5
    assert validated(BASE | BALL | {"data": BASE["data"] | {"public_rows": 1000}}).dp_lloyd.steps == "auto"


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({}, "algorithm auto needs a bound on the rows"),
        ({"server_data": "none"}, "algorithm auto needs a bound on the rows"),
        ({"tree": {"depth": 5}}, "algorithm auto needs a bound on the rows"),
        ({"clipping": {"norm": "domain"}}, "algorithm auto needs a bound on the rows"),
        ({"clipping": {"norm": -3.0}}, r"clipping\.norm must be"),
        ({"clipping": {"norm": "server_radius"}}, r"clipping\.norm must be a number or private"),
        ({"clipping": {"norm": 3.0, "center": "server_mean"}}, r"clipping\.center none"),
        ({"clipping": "x"}, "clipping must be a section of settings, got 'x'"),
        (SERVER | {"tree": {"radiu": 2}}, r"tree\.radiu is not a setting; did you mean radius\?"),
        (SERVER | {"dp_lloyd": {"domain": [1, 0]}}, r"dp_lloyd\.domain must be two finite numbers"),
        ({"tree": {"radius": float("nan")}}, r"tree\.radius must be a number"),
        ({"tree": {"radius": "2"}}, r"tree\.radius must be a number"),
        (BOX | {"quality": {}}, "quality isn't supported for algorithm dp_lloyd"),
        (BOX | {"algorithm": "Auto"}, "algorithm must be 'auto', 'feddp_kmeans'"),
    ],
)
def test_what_it_cannot_choose_by_is_refused(more, rule):
    with pytest.raises(ConfigError, match=rule):
        validated(BASE | more)


def test_a_checked_job_is_that_of_the_algorithm_itself():
    """So digests, ledgers and resumed runs do not know of the rule."""
    auto = validated(BASE | BALL)
    by_hand = {"dp_lloyd": {"domain": [-2, 2], "steps": 2}, "clipping": {"norm": 2.0}}
    assert auto == validated(BASE | by_hand | {"algorithm": "dp_lloyd"})
    again = json.loads(json.dumps(auto.model_dump(mode="json")))
    assert validated({name: value for name, value in again.items() if value is not None}) == auto
