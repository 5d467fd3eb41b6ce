"""Mistakes of new users: each is refused in a sentence that says what to do instead."""

import numpy as np
import pytest

from dapple_dp import ConfigError, DPKMeans, DPTopics, InputError

pytestmark = pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
WIDE = np.random.default_rng(1).uniform(-1, 1, (60, 5))


def model(**changes):
    return DPKMeans(2, **({"epsilon": 1.0, "delta": 1e-6, "domain": (-1, 1)} | changes))


def topics(**changes):
    return DPTopics(2, epsilon=1.0, delta=1e-6, **changes)


@pytest.mark.parametrize(
    ("attempt", "kind", "said"),
    [
        (lambda: model(domain=None).fit(X), ConfigError, r"looking at the rows, such as domain=\(0, 100\)"),
        (lambda: model(domain=[(0, 1)]).fit(X), ConfigError, "got 1 for 2 columns; give one for each column"),
        (lambda: model(domain={"age": (0, 1)}).fit(X), ConfigError, r"no column names, got names; give such a list"),
        (lambda: model(unit="patient").fit(X, groups=X[:, 0]), ConfigError, "unit must be 'record' or 'client'"),
        (lambda: model(unit="client", client_rows=2).fit(X, groups="id"), InputError, "give the column itself"),
        (lambda: model(unit="client", client_rows=2).fit(X, groups=b"id"), InputError, "give the column itself"),
        (
            lambda: model(unit="client", client_rows=2).fit(X, groups=np.where(X[:, 0] < 0, np.nan, 7.0)),
            InputError,
            r"got double; drop rows without an id, then use astype\(int\)",
        ),
        (lambda: model().fit(X[:, 0]), InputError, r"one column is reshape\(-1, 1\), one row reshape\(1, -1\)"),
        (lambda: model().fit(X.astype(complex)), InputError, "give real and imaginary parts as columns"),
        (lambda: topics(unit="record").fit(X), ConfigError, "give reason='WHY'"),
        (lambda: topics(vocabulary=["a"]).fit(X), InputError, r"terms=\[text.split\(\) for text in texts\]"),
        (lambda: topics().fit(X, terms=[["a"]] * 60), InputError, "terms isn't supported without a vocabulary"),
        (lambda: topics(vocabulary=["a"]).fit(None, terms=["a b"] * 60), InputError, "split texts into words"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(attempt, kind, said):
    with pytest.raises(kind, match=said) as refusal:
        attempt()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("rows", [X, WIDE])
def test_ends_of_the_rows_as_two_lists_are_refused_and_not_repeated(rows):
    """`(X.min(axis=0), X.max(axis=0))` is what many try first; the refusal must not hold these numbers."""
    ends = rows.min(axis=0), rows.max(axis=0)
    with pytest.raises(ConfigError, match="got all lower bounds and then all upper ones") as refusal:
        model(domain=ends).fit(rows)
    assert [value for value in np.ravel(ends) if f"{value:.4f}"[:6] in str(refusal.value)] == []


def test_bounds_of_two_columns_that_are_pairs_are_taken():
    """Pairs win where both readings hold, as they did."""
    assert len(model(domain=[(-1, 1), (0, 2)]).fit(X).cluster_centers_) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("labels_", r"call predict\(X\) where these rows may be seen"),
        ("inertia_", r"call score\(X\) where"),
        ("partial_fit", "call fit on all of them"),
        ("cluster_centers_", "call fit first"),
        ("other", r"^'DPKMeans' object has no attribute 'other'$"),
    ],
)
def test_an_attribute_that_is_not_there_says_why(name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(model(), name)
    assert not hasattr(model(), name)
