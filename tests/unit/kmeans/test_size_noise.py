"""The one function that knows the noise of sizes: by kind of release, and an error where there is none."""

import numpy as np
import pytest

from schemas.privacy.plan import Mechanism, ReleasePlan, ReleaseSpec
from schemas.privacy.release import Release
from schemas.settings.json_schema import checked
from schemas.settings.refusal import MalformedError
from schemas.settings.run_manifest import PreviousManifest
from transforms.numerics.kmeans.recurring.size_noise import size_stddevs
from transforms.numerics.kmeans.recurring.windows import mixing

FOLLOWED = {
    "format": 1,
    "files": {},
    "features": ["x"],
    "encoding": None,
    "run_id": "run",
    "clusters": {"released_rows": [0], "next_number": 1},
    "frame": None,
}


def release(path: str, stddev: float) -> Release:
    spec = ReleaseSpec(
        name=path.rpartition("/")[2], shape=(3,), mechanism=Mechanism.DISCRETE_GAUSSIAN, sensitivity=1, share=1.0
    )
    plan = ReleasePlan(spec=spec, noise_multiplier=stddev)
    return Release(path=path, plan=plan, values=np.zeros(3, dtype=np.int64), lattice_unit=1.0)


def test_the_last_release_of_sizes_counts():
    found = [release("a/centers/counts", 5.0), release("a/quality/sizes", 7.0), release("a/quality/cost", 9.0)]
    assert size_stddevs(found, 2).tolist() == [7.0, 7.0]
    assert size_stddevs(found[:1], 2).tolist() == [5.0, 5.0]


def test_the_own_part_of_a_window_has_the_noise_of_what_it_is_solved_from():
    weights = (4, 2, 1)
    for index in range(5):
        found = size_stddevs(
            [release("windows/window/weighted_counts", 8.0)], 3, epoch={"weights": list(weights), "index": index}
        )
        expected = 8.0 / 4 * np.linalg.norm(mixing(weights, index + 1)[-1])
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_sizes_of_leaves_add_up_the_noise_of_each():
    leaves = [release("central_tree/leaves/counts", 3.0)]
    np.testing.assert_allclose(size_stddevs(leaves, 3, n_leaves=np.array([4.0, 1.0, 0.0])), [6.0, 3.0, 3.0])
    assert np.isnan(size_stddevs(leaves, 3)).all()


@pytest.mark.parametrize("path", ["a/sums", "a/new_counts", "counts"])
def test_a_noise_that_is_not_found_is_an_error(path):
    with pytest.raises(LookupError, match="a size must be released to have a noise"):
        size_stddevs([release(path, 1.0)], 3)


@pytest.mark.parametrize(
    "epoch", [{}, {"weights": [], "index": 0}, {"weights": [1, 0], "index": 0}, {"weights": [1], "index": -1}]
)
def test_an_epoch_without_weights_is_refused_where_it_is_read(epoch):
    assert checked(FOLLOWED | {"epoch": {"weights": [16, 6], "index": 2}}, PreviousManifest).epoch is not None
    with pytest.raises(MalformedError):
        checked(FOLLOWED | {"epoch": epoch}, PreviousManifest)
