import dataclasses

import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import load_decode_config, load_encode_config, load_shuffle_config
from dapple_dp.schemas.reports.parameters import ReportParameters
from tests.scenes.reports import parameters, settings


def encode_text(**sections):
    return yaml.safe_dump(settings(**sections))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privacy__unit": "record"}, "privacy.unit must be 'client' for reports, got 'record'"),
        ({"n_clusters": 100_000}, "n_clusters must be at most 10000, got 100000"),
        ({"privacy__epsilon": 0}, "privacy.epsilon must be"),
        ({"data": {"path": "lake", "features": "x"}}, "data.client_id is required for reports"),
        ({"data__max_rows_per_client": 2}, "data.max_rows_per_client must be 1 for reports, got 2"),
        ({"data__on_invalid_rows": "drop"}, "data.on_invalid_rows must be 'fail' for reports"),
        ({"reports__mode": "shuffle"}, "privacy.delta is required for reports.mode shuffle"),
        (
            {"reports": {"mode": "shuffle", "variant": "paper"}, "privacy__delta": 1e-6},
            "reports.variant 'paper' isn't supported for reports.mode shuffle",
        ),
        (
            {"reports__variant": "split_and_mix"},
            "reports.variant no longer accepts split_and_mix; leave reports.variant out",
        ),
        (
            {"reports__variant": "pure"},
            "reports.variant must be 'leaves', 'nested', 'points', 'privunit' or 'paper'",
        ),
        ({"reports__varant": "paper"}, "did you mean reports.variant"),
        ({"tree__depth": 13}, "tree.depth must be 'auto' or an integer from 1 to 12, got 13"),
        ({"tree__radius": -1.0}, "tree.radius must be a number from 1e-100 to 1e100, got -1.0"),
        ({"reports__min_batch": 0}, "reports.min_batch must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(sections, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        load_encode_config(encode_text(**sections))


def test_decode_needs_a_path_and_takes_the_settings_of_encode():
    with pytest.raises(ConfigError, match=r"reports\.path is required for decode"):
        load_decode_config("reports: {}")
    with pytest.raises(ConfigError, match=r"reports is required"):
        load_decode_config("seed: 3")
    with pytest.raises(ConfigError, match=r"reports\.arrived is required for shuffle"):
        load_shuffle_config("reports: {path: folder}")
    assert load_shuffle_config(encode_text(reports__arrived="inbox")).reports.arrived == "inbox"
    config = load_decode_config(encode_text(reports__path="folder"))
    assert config.job is not None
    assert config.job.n_clusters == 3
    config.check(parameters())
    with pytest.raises(ConfigError, match=r"n_clusters must be 3 as in the reports, got 4"):
        load_decode_config(encode_text(reports__path="folder", n_clusters=4)).check(parameters())


def test_the_depth_follows_from_the_signal_that_is_to_be_expected():
    for epsilon in (1.0, 4.0):
        assert parameters(100, n_clusters=8, privacy__epsilon=epsilon).depth == 8
    nested = {"reports__variant": "nested"}
    weak, strong = {"privacy__epsilon": 1.0} | nested, {"privacy__epsilon": 4.0} | nested
    assert parameters(100, n_clusters=8, reports__min_batch=100_000, **weak).depth == 6
    assert parameters(100, n_clusters=8, reports__min_batch=100_000, **strong).depth == 9
    assert parameters(100, n_clusters=8, reports__min_batch=1_000_000, **weak).depth == 9
    assert parameters(100, n_clusters=8, reports__variant="paper", privacy__epsilon=4.0).depth == 6
    assert parameters(tree__depth=2).depth == 2
    assert parameters(reports__variant="points").depth == 0


def test_shuffled_reports_are_less_private_one_by_one_and_have_no_levels():
    public = parameters(
        privacy={"unit": "client", "epsilon": 1.0, "delta": 1e-6}, reports={"mode": "shuffle", "min_batch": 100_000}
    )
    assert public.depth == 0
    assert public.guarantee.local_epsilon == pytest.approx(7.96, abs=0.01)
    assert (public.guarantee.epsilon, public.guarantee.delta) == (1.0, 1e-6)
    assert public.choices[0][0].size == 1024


@pytest.mark.parametrize("epsilon", [8.01, 20.0])
def test_an_epsilon_beyond_all_codewords_is_refused(epsilon):
    with pytest.raises(ConfigError, match="epsilon of one report must be > 0 and at most 8"):
        parameters(privacy__epsilon=epsilon)


@pytest.mark.parametrize("variant", ["leaves", "nested", "points", "privunit", "paper"])
def test_parameters_survive_json(variant):
    public = parameters(reports__variant=variant)
    assert ReportParameters.from_json(public.to_json()) == public


@pytest.mark.parametrize("change", [("version", "2"), ("variant", '"other"'), ("key", '"00"'), ("depth", '"x"')])
def test_parameters_that_are_not_parameters_are_refused(change):
    import json

    content = json.loads(parameters().to_json()) | {change[0]: json.loads(change[1])}
    with pytest.raises(ConfigError, match="report parameters"):
        ReportParameters.from_json(json.dumps(content))
    with pytest.raises(ConfigError, match="report parameters"):
        ReportParameters.from_json("[]")


def test_parameters_need_features_and_a_radius():
    for radius in (0.0, 1e-101, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="radius from 1e-100 to 1e100"):
            dataclasses.replace(parameters(), radius=radius)
    for change in ({"depth": 13}, {"features": ()}, {"key": b""}, {"n_clusters": 0}):
        with pytest.raises(ConfigError, match="features and clusters"):
            dataclasses.replace(parameters(), **change)
