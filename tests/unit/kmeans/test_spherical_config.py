"""Refusals of a job of algorithm spherical, in one sentence."""

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import load_config, validated
from dapple_dp.schemas.kmeans.jobs.topics_config import load_topics
from dapple_dp.schemas.kmeans.spherical_config import MOST_CELLS
from dapple_dp.transforms.kmeans.spherical.state import SphericalSettings

JOB = {
    "experimental": True,
    "algorithm": "spherical",
    "data": {"path": "texts", "features": "x", "client_id": "who"},
    "n_clusters": 3,
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
    "clipping": {"client_rows": 4},
}
NAMES = {"column": "tags", "words": ["a", "b"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "record"}},
            "privacy.unit must be client .* 'record'",
        ),
        (
            {"privacy": {"epsilon": 1.0, "delta": 1e-6, "allocation": "paper"}},
            "privacy.allocation and privacy.shares aren't supported",
        ),
        ({"quality": {}}, "quality isn't supported for algorithm spherical"),
        ({"lloyd": {"steps": 1}}, "lloyd.steps isn't supported for algorithm spherical"),
        ({"n_clusters": {"max": 4, "choose": "elbow"}}, "n_clusters must be an integer for algorithm spherical"),
        ({"clipping": {"norm": "private", "client_rows": 4}}, "clipping.norm must be a number"),
        (
            {"clipping": {"center": "server_mean", "client_rows": 4}, "server_data": {"path": "s"}},
            "clipping.center must be none",
        ),
        ({"recurring": {"previous": "p"}}, "doesn't support a warm start"),
        ({"clipping": {}}, "clipping.client_rows is required for privacy.unit client"),
        ({"spherical": {"steps": 0}}, "spherical.steps must be 'auto' or an integer from 1 to 100"),
        ({"names": {"column": "tags"}}, "names.vocabulary or names.words is required"),
        ({"names": NAMES | {"column": "who"}}, "names.column must differ from data.client_id"),
        ({"names": NAMES | {"column": "x"}}, "names.column must differ from data.client_id"),
        (
            {"names": NAMES | {"words": ["a", "a"]}},
            "names.words must be a list without duplicates, got a problem at position 2",
        ),
        ({"names": NAMES | {"words": ["a "]}}, "names.words must be a non-empty list of terms without spaces"),
        ({"names": NAMES | {"words": ["a\x07b"]}}, "none a control character"),
        ({"names": NAMES | {"words": []}}, "names.words must be a non-empty list"),
        ({"n_clusters": 10_000, "names": NAMES | {"words": list(map(str, range(500)))}}, "n_clusters times the terms"),
        ({"dp_lloyd": {"domain": [0, 1]}}, "dp_lloyd isn't supported for algorithm spherical"),
    ],
)
def test_it_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        validated(JOB | changes)


def test_rows_are_units_for_a_reason():
    reason = {"privacy.unit": "each row is of another person"}
    found = validated(JOB | {"privacy": JOB["privacy"] | {"unit": "record"}, "justification": reason})
    assert found.privacy.unit == "record"


@pytest.mark.parametrize(("most", "terms", "cells"), [(32, 100, 32), (32, 2, 2), (8, 100, 8), (1000, 3, 3)])
def test_a_unit_has_as_many_terms_as_a_row_may_have(most, terms, cells):
    for unit in ("client", "record"):
        changes = {"privacy": JOB["privacy"] | {"unit": unit}, "justification": {"privacy.unit": "a test"}}
        names = NAMES | {"most_per_row": most, "words": list(map(str, range(terms)))}
        limits = SphericalSettings.from_config(validated(JOB | changes | {"names": names})).limits
        assert (limits.n_terms, limits.per_row) == (terms, cells)


def test_a_vocabulary_is_read_once_and_its_blank_lines_are_left_out():
    job = validated(JOB | {"names": {"column": "tags", "vocabulary": "v.txt"}})
    assert job.terms is None
    found = job.with_files(lambda path, setting: f"{path}\n\n  {setting} \n")
    assert found.terms.vocabulary == ("v.txt", "names.vocabulary")
    assert found.with_files(lambda *_: 1 / 0) == found


def test_the_mark_of_an_editor_is_no_part_of_the_first_term():
    job = validated(JOB | {"names": {"column": "tags", "vocabulary": "v.txt"}})
    assert job.with_files(lambda *_: "\ufeffa\r\nb\r\n").terms.vocabulary == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [("a\nb\na\n", "without duplicates"), ("\n", "non-empty list"), ("x" * 101, "at most 100 letters")],
)
def test_an_invalid_vocabulary_is_refused(text, said):
    job = validated(JOB | {"names": {"column": "tags", "vocabulary": "v.txt"}})
    with pytest.raises(ConfigError, match=said):
        job.with_files(lambda *_: text)


@pytest.mark.parametrize(
    "text", ["private\nb\nprivate\n", "private\n" + "x" * 101, "private\x07\nb", "private\n" * 66_000]
)
def test_the_terms_of_a_file_are_not_quoted_before_anybody_knows_that_it_is_public(text):
    job = validated(JOB | {"names": {"column": "tags", "vocabulary": "v.txt"}})
    with pytest.raises(ConfigError) as refused:
        job.with_files(lambda *_: text)
    assert "private" not in str(refused.value)
    assert "66000" not in str(refused.value)


def test_a_long_vocabulary_is_refused_for_many_clusters():
    job = validated(JOB | {"n_clusters": 10_000, "names": {"column": "tags", "vocabulary": "v.txt"}})
    lines = "\n".join(map(str, range(MOST_CELLS // 10_000 + 1)))
    with pytest.raises(ConfigError, match="n_clusters times the terms of names must be at most"):
        job.with_files(lambda *_: lines)


def test_the_section_of_topics_asks_for_names():
    with pytest.raises(ConfigError, match="column and vocabulary, got no names"):
        load_topics(
            "{algorithm: spherical, data: {path: t, features: x, client_id: p}, n_clusters: 3, privacy: "
            "{epsilon: 1.0, delta: 1.0e-6}, clipping: {client_rows: 3}}"
        )
    with pytest.raises(ConfigError, match="column and vocabulary, got algorithm dp_lloyd"):
        load_topics(
            "{algorithm: dp_lloyd, data: {path: t, features: x}, n_clusters: 3, dp_lloyd: {domain: [0, 1]}, "
            "privacy: {unit: record, epsilon: 1.0, delta: 1.0e-6}}"
        )
    without = "{data: {path: t, features: x}, n_clusters: 3, privacy: {epsilon: 1.0, delta: 1.0e-6}}"
    for load in (load_topics, load_config):
        with pytest.raises(ConfigError, match="algorithm is required"):
            load(without)
    assert (
        load_config(
            "{algorithm: spherical, data: {path: t, features: x, client_id: p}, n_clusters: 3, privacy: "
            "{epsilon: 1.0, delta: 1.0e-6}, clipping: {client_rows: 3}}"
        ).names
        is None
    )
