"""Claims of labels, pages and documentation are listed, each sentence with what holds it.

`python -m tests.scenes.sentences` renews the list after a change; a sentence that is new there is `unclassified` until
somebody says in `tests/data/sentences.tsv` which test holds it where its assumption fails, or which record makes it.
"""

import math
from types import SimpleNamespace

import pytest
from scipy import stats

from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.page import change_words, odds
from dapple_dp.schemas.core.plan import Mechanism
from tests.scenes import sentences

_RENEW = "run `python -m tests.scenes.sentences` and classify what is new in tests/data/sentences.tsv"


def test_every_claim_and_every_constant_of_a_page_is_listed():
    found, listed = sentences.found(), sentences.listed()
    assert not [
        f"{where}: {sentence}" for (part, sentence), where in found.items() if (part, sentence) not in listed
    ], _RENEW
    assert not [each.sentence for key, each in listed.items() if key not in found], _RENEW


def test_every_listed_sentence_has_its_kind_and_what_holds_it():
    for each in sentences.listed().values():
        assert each.kind in sentences.KINDS[each.part], (each.kind, each.sentence)
        path, _, name = each.how.partition("::")
        needs = each.kind in ("test", "record", "rule", "proof", "measured", "source")
        assert (path == "-") is not needs, (each.how, each.sentence)
        assert path == "-" or (sentences.ROOT / path).exists(), (path, each.sentence)
        assert each.kind != "test" or path.startswith("tests/"), (path, each.sentence)
        assert not name or f"def {name}(" in (sentences.ROOT / path).read_text(), (each.how, each.sentence)


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_two_stddevs_hold_as_many_cases_as_a_page_says(mechanism):
    """Laplace noise has heavier tails: two stddevs of it hold less than 19 of 20."""
    release = SimpleNamespace(plan=SimpleNamespace(spec=SimpleNamespace(mechanism=mechanism)))
    said = FitView.in_two_stddevs.fget(SimpleNamespace(releases=(release,)))
    law = stats.norm() if mechanism is Mechanism.DISCRETE_GAUSSIAN else stats.laplace(scale=math.sqrt(0.5))
    held = law.cdf(2.0) - law.cdf(-2.0)
    assert int(said.split()[0]) / 20.0 <= held < (int(said.split()[0]) + 1) / 20.0
    assert abs(held - 0.95) < 0.01


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05])
def test_no_guess_is_right_more_often_than_a_label_says(epsilon, delta):
    """The pair of laws that dominates all others of the guarantee, and a Gaussian mechanism."""
    likely = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    there, gone = (delta, likely, 1.0 - delta - likely, 0.0), (0.0, 1.0 - delta - likely, likely, delta)
    right = sum(max(pair) for pair in zip(there, gone, strict=True)) / 2.0
    assert right <= odds(epsilon, delta) * (1.0 + 1e-12)
    assert math.isclose(right, odds(epsilon, delta), rel_tol=1e-12)
    words = change_words("Adding one row", "any result", "a row", epsilon, delta, "a key")
    if odds(epsilon, delta) < 0.995:
        said = float(words.partition("with probability at most ")[2].partition("%")[0])
        assert right <= said / 100.0 <= right * 1.01


def test_an_observer_may_become_surer_than_the_odds_more_often_than_delta():
    """So a label says how often a guess is right, not how sure an observer may become."""
    epsilon, multiplier = 1.0, 4.0
    beyond = stats.norm.sf(epsilon * multiplier - 0.5 / multiplier)
    delta = beyond - math.exp(epsilon) * stats.norm.sf(epsilon * multiplier + 0.5 / multiplier)
    assert 1e-6 < delta < 1e-4
    assert beyond > 3.0 * delta
    words = change_words("Adding one row", "any result", "a row", epsilon, delta, "a key")
    assert "sure" not in words
    # A guess by the sign of the noise alone is right less often than the label allows.
    assert stats.norm.cdf(0.5 / multiplier) < odds(epsilon, delta)
