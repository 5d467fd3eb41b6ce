"""Configs of sweeps: which cells they stand for, and what they refuse in one sentence."""

import copy

import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig
from dapple_dp.schemas.trusted_zone.sweep_config import load_sweep_config, merged, sweep_config

BASE = {
    "experimental": True,
    "data": {"path": "lake", "features": ["a", "b"], "client_id": "who"},
    "server_data": {"path": "server"},
    "n_clusters": 3,
    "privacy": {"unit": "record", "delta": 1e-6},
    "clipping": {"norm": "server_radius", "client_rows": 10},
    "sweep": {
        "methods": {
            "rows": {"algorithm": "feddp_kmeans"},
            "clients": {"algorithm": "feddp_kmeans", "privacy": {"unit": "client"}},
            "plain": {"algorithm": "optimal"},
        },
        "epsilons": [0.5, 1],
        "seeds": 2,
        "settings": {"lloyd.steps": [0, 1]},
    },
}


def job(**changes):
    """The base with settings replaced by their dotted names, `__` for the dot; None removes one."""
    found = copy.deepcopy(BASE)
    for name, value in changes.items():
        *sections, key = name.split("__")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place.pop(key, None) if value is None else place.update({key: value})
    return found


def cells(**changes):
    return sweep_config(job(**changes)).cells


def test_cells_are_every_combination_in_order():
    found = cells()
    assert len(found) == 2 * 2 * 2 * 2 + 2
    private = [(each.method, each.settings_text, each.epsilon, each.seed) for each in found if each.epsilon]
    assert private[:5] == [
        ("rows", "lloyd.steps=0", 0.5, 0),
        ("rows", "lloyd.steps=0", 0.5, 1),
        ("rows", "lloyd.steps=0", 1.0, 0),
        ("rows", "lloyd.steps=0", 1.0, 1),
        ("rows", "lloyd.steps=1", 0.5, 0),
    ]
    assert [(each.epsilon, each.seed, each.settings) for each in found[-2:]] == [(None, 0, ()), (None, 1, ())]


def test_a_cell_is_the_job_that_its_columns_say():
    for each in cells():
        assert each.config.seed == each.seed
        if isinstance(each.config, FitConfig):
            assert each.config.privacy.epsilon == each.epsilon
            assert each.config.lloyd.steps == dict(each.settings)["lloyd.steps"]
            assert each.config.privacy.unit == {"rows": "record", "clients": "client"}[each.method]
        else:
            assert isinstance(each.config, PooledFitConfig)


def test_the_jobs_own_epsilon_and_seed_give_way():
    for each in cells(privacy__epsilon=7.0, seed=5):
        assert each.config.seed == each.seed
        assert each.epsilon is None or each.config.privacy.epsilon == each.epsilon


def test_settings_that_a_method_without_privacy_reads_are_varied_there_too():
    found = [each for each in cells(sweep__settings__n_clusters=[2, 4]) if each.method == "plain"]
    assert [(each.settings, each.config.n_clusters) for each in found] == [
        ((("n_clusters", n),), n) for n in (2, 2, 4, 4)
    ]


def test_all_digests_differ():
    assert len({each.digest for each in cells()}) == len(cells())
    one, other = cells(), cells(n_clusters=4)
    assert not {each.digest for each in one} & {each.digest for each in other}


def test_the_same_job_under_two_names_is_two_cells():
    methods = {"one": {"algorithm": "feddp_kmeans"}, "two": {"algorithm": "feddp_kmeans"}}
    found = cells(sweep__methods=methods, sweep__epsilons=[1.0], sweep__seeds=1, sweep__settings=None)
    assert found[0].config == found[1].config
    assert found[0].digest != found[1].digest


def test_the_digest_of_a_sweep_is_that_of_its_cells():
    plain = sweep_config(job())
    assert plain.digest == sweep_config(job(sweep__cells_per_pipeline=3)).digest
    assert plain.digest == load_sweep_config(yaml.safe_dump(job(), sort_keys=False)).digest
    assert plain.digest != sweep_config(job(sweep__seeds=[1, 0])).digest


def test_the_scores_are_part_of_the_digest_of_a_sweep():
    methods = {"rows": {"algorithm": "feddp_kmeans"}}
    plain = sweep_config(job(sweep__methods=methods))
    scored = sweep_config(job(sweep__methods=methods, sweep__evaluate={}))
    labelled = sweep_config(job(sweep__methods=methods, sweep__evaluate={"label": "kind"}))
    assert len({plain.digest, scored.digest, labelled.digest}) == 3
    assert [each.digest for each in plain.cells] == [each.digest for each in labelled.cells]


def test_scores_of_clients_that_are_read_whole_are_refused():
    methods = {"clients": {"algorithm": "feddp_kmeans", "privacy": {"unit": "client"}}}
    with pytest.raises(ConfigError, match=r"sweep\.evaluate isn't supported .* such as clients; run those"):
        sweep_config(job(sweep__methods=methods, sweep__evaluate={}, sweep__settings=None))


def test_seeds_are_a_number_or_a_list():
    assert sweep_config(job(sweep__seeds=3)).options.seeds == (0, 1, 2)
    assert sweep_config(job(sweep__seeds=[7, 3])).options.seeds == (7, 3)


def test_merging_goes_section_by_section_and_copies():
    base = {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}
    found = merged(base, {"a": {"c": {"f": 3}}, "e": [2], "g": {"h": 1}})
    assert found == {"a": {"b": 1, "c": {"d": 2, "f": 3}}, "e": [2], "g": {"h": 1}}
    assert merged({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}
    assert base == {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sweep": None}, "sweep is required; add a section with methods, epsilons and seeds."),
        ({"sweep__methods": {}}, "sweep.methods must "),
        ({"sweep__epsilons": None}, "sweep.epsilons is required; give a list of epsilons"),
        ({"sweep__epsilons": [1, 1.0]}, "sweep.epsilons must be a non-empty list without duplicates, got [1, 1.0]"),
        ({"sweep__epsilons": []}, "sweep.epsilons must be a non-empty list without duplicates, got []"),
        ({"sweep__epsilons": 1.0}, "sweep.epsilons must be a non-empty list without duplicates, got 1.0"),
        ({"sweep__epsilons": [-1.0]}, "sweep.epsilons.0 must be greater than 0, got -1.0"),
        ({"sweep__seeds": 0}, "sweep.seeds must be an integer >= 1 or a list of distinct seeds, got 0"),
        ({"sweep__seeds": [{}, {}]}, "sweep.seeds must be an integer >= 1 or a list of distinct seeds, got [{}, {}]"),
        ({"sweep__seeds": [1, 1]}, "sweep.seeds must be an integer >= 1 or a list of distinct seeds, got [1, 1]"),
        ({"sweep__seeds": [-1]}, "sweep.seeds.0 must be at least 0, got -1"),
        ({"sweep__cells_per_pipeline": 0}, "sweep.cells_per_pipeline must be at least 1, got 0"),
        ({"sweep__epsilon": [1.0]}, "sweep.epsilon is not a setting; did you mean epsilons?"),
        ({"sweep__settings__seed": [1]}, "sweep.settings must not hold seed; list its values under"),
        ({"sweep__settings": {"privacy.epsilon": [1]}}, "sweep.settings must not hold privacy.epsilon"),
        ({"sweep__methods__rows__seed": 1}, "sweep.methods.rows must not hold seed"),
        (
            {"sweep__methods__rows__privacy": {"epsilon": 3.0}},
            "sweep.methods.rows must not hold privacy.epsilon",
        ),
        ({"sweep__settings": {"lloyd.step": [1]}}, "sweep.methods.rows: lloyd.step is not a setting; did you mean"),
        ({"sweep__settings": {"lloyd.steps": [99]}}, "sweep.methods.rows: lloyd.steps must be at most 50, got 99"),
        ({"sweep__methods__rows__algorithm": "fedp"}, "sweep.methods.rows: algorithm must be "),
        ({"sweep__methods__plain__encod": {}}, "sweep.methods.plain: encod is not a setting; did you mean encode?"),
        ({"sweep__methods__plain__n_clusters": 0}, "sweep.methods.plain: n_clusters must be at least 1, got 0"),
        (
            {"sweep__methods__plain__data": {"features": ["a"]}},
            "data.features must be the same in all methods of a sweep, got another value in plain; run that method",
        ),
        (
            {"sweep__methods__clients__encode": {"a": {"kind": "standardize", "mean": 0.0, "stddev": 1.0}}},
            "encode must be the same in all methods of a sweep, got another value in clients",
        ),
        ({"key_uri": "key"}, "key_uri isn't supported for a sweep, got it in rows"),
        ({"trust": "masked"}, "trust must be central in a sweep, got masked in rows; leave it out: one trusted job"),
        ({"sweep__methods__clients__trust": "masked"}, "trust must be central in a sweep, got masked in clients;"),
        ({"sweep__settings": {"trust": ["central", "masked"]}}, "trust must be central in a sweep, got masked in rows"),
        (
            {"sweep__settings": {"server_data": [{"path": "x"}, {"path": "y"}], "server_data.path": ["z"]}},
            "sweep.settings must lead to different jobs, got the same one twice for rows; remove one.",
        ),
        (
            {"data__table": {"format": "delta"}},
            "data.table.version is required for a sweep; name the snapshot that all its parts read.",
        ),
    ],
)
def test_bad_sweeps_are_refused_in_one_sentence(changes, sentence):
    with pytest.raises(ConfigError) as caught:
        sweep_config(job(**changes))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", [None, [], "sweep", {"algorithm": "optimal"}])
def test_a_job_that_is_not_a_sweep_is_refused(settings):
    with pytest.raises(ConfigError, match=r"^sweep is required"):
        sweep_config(settings)
