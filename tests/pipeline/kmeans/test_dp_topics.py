"""DPTopics: the estimator of topics, on texts in memory."""

import numpy as np
import pytest
from sklearn.base import clone

from dapple_dp import DPKMeans, DPTopics
from dapple_dp.schemas.errors import ConfigError, InputError

N_ROWS, CLIENT_ROWS, D = 900, 6, 5
TOPICS = np.arange(N_ROWS) // CLIENT_ROWS % 3
WORDS = ("cat", "dog", "bird", "the")
TERMS = [[WORDS[topic], "private"] for topic in TOPICS]
GROUPS = np.arange(N_ROWS) // CLIENT_ROWS
POINTS = np.eye(D)[TOPICS] + np.random.default_rng(0).normal(0.0, 0.1, (N_ROWS, D))
GIVEN = {"epsilon": 9.0, "delta": 1e-6, "client_rows": CLIENT_ROWS, "random_state": 3}


def topics(**changes):
    return DPTopics(3, **GIVEN | {"vocabulary": WORDS, "settings": {"spherical": {"steps": 6}}} | changes)


def test_topics_get_names():
    # Rows in another order: terms must follow theirs where rows are brought together by client.
    order = np.random.default_rng(1).permutation(N_ROWS)
    found = topics().fit(POINTS[order], terms=[TERMS[index] for index in order], groups=GROUPS[order])
    axes = found.cluster_centers_.argmax(axis=1)
    assert [names[0] for names in found.names_] == [WORDS[axis] for axis in axes]
    assert sorted(axes.tolist()) == [0, 1, 2]
    np.testing.assert_allclose(np.linalg.norm(found.cluster_centers_, axis=1), 1.0, atol=1e-4)
    assert found.privacy_.unit == "client"
    labels = found.predict(POINTS)
    assert (axes[labels] == TOPICS).mean() > 0.95
    assert clone(found).get_params() == found.get_params()


def test_texts_without_vectors_are_their_terms():
    found = topics(width=32, settings=None).fit(None, terms=TERMS, groups=GROUPS)
    assert sorted(names[0] for names in found.names_) == ["bird", "cat", "dog"]
    labels = found.predict(found.vectors([["dog"], ["unknown", "dog"], ["cat"]]))
    assert [found.names_[label][0] for label in labels] == ["dog", "dog", "cat"]


def test_a_vocabulary_may_be_the_array_of_a_vectorizer():
    found = topics(vocabulary=np.array(WORDS, dtype=object), width=32, settings=None).fit(
        None, terms=TERMS, groups=GROUPS
    )
    assert sorted(names[0] for names in found.names_) == ["bird", "cat", "dog"]
    np.testing.assert_array_equal(found.vectors(TERMS), topics(width=32).vectors(TERMS))


def test_terms_may_be_iterators():
    once = (iter(each) for each in TERMS)
    found = topics(width=32, settings=None).fit(None, terms=once, groups=GROUPS)
    assert sorted(names[0] for names in found.names_) == ["bird", "cat", "dog"]
    np.testing.assert_array_equal(found.vectors(iter([iter(["dog"])])), found.vectors([["dog"]]))


def test_topics_without_a_vocabulary_have_no_names(tmp_path):
    found = topics(vocabulary=None, unit="record", reason="each text is of another person").fit(POINTS)
    assert found.names_ == [[], [], []]
    found.save(tmp_path / "out")
    np.testing.assert_array_equal(DPKMeans.load(tmp_path / "out").cluster_centers_, found.cluster_centers_)


@pytest.mark.parametrize(
    ("changes", "given", "said"),
    [
        ({}, {"groups": GROUPS}, "terms is required with a vocabulary"),
        ({}, {"groups": GROUPS, "terms": TERMS[:-1]}, "terms must have one list for each row"),
        ({}, {"groups": GROUPS, "terms": [[1]] * N_ROWS}, "terms must hold a list of strings"),
        ({}, {"groups": GROUPS, "terms": ["dog"] * N_ROWS}, "terms must hold a list of strings"),
        (
            {"vocabulary": ("a", "a")},
            {"terms": TERMS, "groups": GROUPS},
            "^vocabulary must be a list without duplicates",
        ),
        ({"vocabulary": ()}, {"terms": TERMS, "groups": GROUPS}, "^vocabulary must be a non-empty list"),
        ({}, {"terms": TERMS}, "groups is required for unit 'client'"),
        ({"unit": "record"}, {"terms": TERMS}, "unit must be client for algorithm spherical unless"),
        (
            {"settings": {"lloyd": {}}},
            {"terms": TERMS, "groups": GROUPS},
            "sections spherical, names only, got 'lloyd'",
        ),
    ],
)
def test_it_is_refused_in_one_sentence(changes, given, said):
    with pytest.raises((ConfigError, InputError), match=said):
        topics(**changes).fit(POINTS, **given)


def test_an_invalid_width_is_refused():
    with pytest.raises(ConfigError, match="width must be at least 8"):
        topics(width=4).vectors(TERMS)


def test_the_estimator_of_k_means_names_that_of_topics():
    with pytest.raises(ConfigError, match="use DPTopics"):
        DPKMeans(3, algorithm="spherical", epsilon=1.0, delta=1e-6, clipping_norm=1.0).fit(POINTS)
