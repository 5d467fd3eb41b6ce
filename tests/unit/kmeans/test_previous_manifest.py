"""Checks of the manifest of the run that another one follows."""

import pytest

from dapple_dp.schemas.settings.json_schema import check_content
from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.schemas.settings.run_manifest import PreviousManifest

FOLLOWED = {
    "format": 1,
    "files": {},
    "features": ["x"],
    "encoding": None,
    "run_id": "run",
    "clusters": {"released_rows": [0], "next_number": 1},
    "frame": None,
}


@pytest.mark.parametrize(
    "epoch", [{}, {"weights": [], "index": 0}, {"weights": [1, 0], "index": 0}, {"weights": [1], "index": -1}]
)
def test_an_epoch_without_weights_is_refused_where_it_is_read(epoch):
    assert check_content(FOLLOWED | {"epoch": {"weights": [16, 6], "index": 2}}, PreviousManifest).epoch is not None
    with pytest.raises(MalformedError):
        check_content(FOLLOWED | {"epoch": epoch}, PreviousManifest)
