"""Lists of terms as directions: lengths, what counts, what is refused, and numbers that no later version may change."""

import json

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.errors import ConfigError, SchemaMismatchError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import Terms

WORDS = ("cat", "dog", "bird", "fish")
PLACES = [[5, 15, 18, 28, 35, 43, 48, 58], [6, 15, 21, 28, 39, 43, 49, 57]]
SIGNS = [[-1, 1, 1, 1, 1, -1, 1, 1], [1, -1, 1, -1, -1, -1, -1, -1]]
JOB = {
    "algorithm": "spherical",
    "data": {"path": "t", "features": ["tags"], "client_id": "p"},
    "n_clusters": 3,
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
    "clipping": {"client_rows": 3},
    "encode": {"tags": {"kind": "terms", "vocabulary": "v.txt"}},
}


def encoder(words=WORDS, width=64, weight=1.0):
    return Encoder.learn(("tags",), {"tags": Terms(words=words, width=width, weight=weight)})


def encoded(values, kind=None, **settings):
    return encoder(**settings).encode(pa.table({"tags": pa.array(values, kind)}), "t")


def test_a_row_is_the_direction_of_the_sum_of_its_terms():
    cat, dog, both = encoded([["cat"], ["dog"], ["cat", "dog"]])
    np.testing.assert_allclose(both, (cat + dog) / np.linalg.norm(cat + dog), atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm([cat, dog, both], axis=1), 1.0, atol=1e-15)
    # A sign in each of eight equal parts.
    assert np.count_nonzero(cat.reshape(8, 8), axis=1).tolist() == [1] * 8
    assert set(np.abs(cat[cat != 0.0]).round(12)) == {round(8**-0.5, 12)}


def test_order_repetition_and_unknown_terms_do_not_count():
    rows = encoded([["cat", "dog"], ["dog", "cat", "dog"], ["dog", "secret", None, "cat"]])
    np.testing.assert_array_equal(rows[1:], np.broadcast_to(rows[0], (2, 64)))


def test_rows_without_a_known_term_have_a_direction_of_their_own():
    rows = encoded([[], ["secret"], ["cat"], ["dog"], ["bird"], ["fish"]])
    np.testing.assert_array_equal(rows[0], rows[1])
    assert np.linalg.norm(rows[0]) == pytest.approx(1.0)
    assert np.abs(rows[2:] @ rows[0]).max() < 0.9


def test_nulls_are_invalid_and_strings_are_one_term_each():
    np.testing.assert_array_equal(np.isnan(encoded([["cat"], None])).all(axis=1), [False, True])
    np.testing.assert_array_equal(encoded(["cat", "dog"]), encoded([["cat"], ["dog"]]))
    words = pa.array(["cat", "dog"]).dictionary_encode()
    np.testing.assert_array_equal(encoded(words), encoded([["cat"], ["dog"]]))
    np.testing.assert_array_equal(
        encoded([["cat"]], pa.large_list(pa.large_string())), encoded([["cat"]], weight=2.0) / 2.0
    )
    assert encoded([], pa.list_(pa.string())).shape == (0, 64)


def test_inner_products_are_kept_but_for_little():
    """Inner products of 400 random sets of 8 terms of 5,000, beside the exact ones; 256 features err by about 1/16."""
    rng = np.random.default_rng(0)
    words = tuple(f"w{index}" for index in range(5000))
    sets = rng.integers(0, 60, (400, 8))
    exact = np.zeros((400, 60))
    np.put_along_axis(exact, sets, 1.0, axis=1)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    rows = encoded([[words[each] for each in row] for row in sets], words=words, width=256)
    apart = (rows @ rows.T - exact @ exact.T)[np.triu_indices(400, 1)]
    assert abs(apart.mean()) < 0.01
    assert apart.std() < 1.2 / 16.0


def test_no_later_version_may_change_the_vectors():
    """Released centers are in them. Places and signs of the first and the third term."""
    rows = encoded([["cat"], ["bird"]])
    assert [np.flatnonzero(row).tolist() for row in rows] == PLACES
    assert [np.sign(row[row != 0.0]).astype(int).tolist() for row in rows] == SIGNS


def test_it_survives_json_and_has_no_unit_of_its_own():
    found = encoder(weight=0.5)
    again = Encoder.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert again.is_projected
    assert again.in_units(np.ones((2, 64))) is None
    assert again.names[:2] == ("tags[0]", "tags[1]")


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.int64())])
def test_other_types_are_refused(kind):
    with pytest.raises(SchemaMismatchError, match="'tags' of t must hold strings, or lists of strings"):
        encoded([], kind)


def test_the_vocabulary_is_read_from_its_file_once():
    job = validated(JOB).with_files(lambda path, setting: f"{path}\n{setting}\n")
    assert job.encode["tags"].words == ("v.txt", "encode.tags.vocabulary")
    assert job.with_files(lambda *_: 1 / 0) == job


def test_the_column_of_names_may_be_that_of_the_rows():
    assert validated(JOB | {"names": {"column": "tags", "words": WORDS}}).terms.column == "tags"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encode": {"tags": {"kind": "terms"}}}, r"^encode.tags.vocabulary or words is required"),
        ({"encode": {"tags": {"kind": "terms", "words": ["a", "a"]}}}, "^encode.tags.words must be a list without dup"),
        ({"encode": {"tags": {"kind": "terms", "words": ["a"], "width": 7}}}, "^encode.tags.width must be at least 8"),
        ({"encode": {"tags": {"kind": "terms", "words": ["a"], "width": 8193}}}, "encode.tags.width must be at most"),
        ({"data": JOB["data"] | {"features": ["tags", "age"]}}, "data.features must name only column 'tags'"),
    ],
)
def test_it_is_refused_in_one_sentence(changes, said):
    with pytest.raises(ConfigError, match=said):
        validated(JOB | changes)


@pytest.mark.parametrize("algorithm", [Algorithm.DP_LLOYD, Algorithm.AUTO])
def test_other_algorithms_are_refused(algorithm):
    job = JOB | {"algorithm": str(algorithm), "dp_lloyd": {"domain": [-1, 1]}}
    job["privacy"] = JOB["privacy"] | {"unit": "client"}
    with pytest.raises(
        ConfigError, match=r"^encode.tags.kind must not be terms here.* only the directions of rows, or an"
    ):
        validated(job)
