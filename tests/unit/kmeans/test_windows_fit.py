"""Settings and refusals of a job of algorithm windows, and how a stream writes it."""

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.jobs.stream_config import stream_config
from tests.scenes.lake import fit_of

EPOCH = {"name": "e", "column": "dt", "first": "2026-01-01", "windows": 9, "days": 7, "band": 4, "once": "made so"}
FIT = {
    "algorithm": "dp_lloyd",
    "data": {"path": "lake", "features": "x", "name": "days"},
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
    "dp_lloyd": {"domain": [0, 1]},
    "ledger": "ledger.sqlite",
}
OF_WINDOW = {"epoch": EPOCH | {"window": "2026-01-15"}, "recurring": {"previous": "before", "memory": 4}}
WINDOW = FIT | {"algorithm": "windows"} | OF_WINDOW
_BY_CLIENT = {
    "privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6},
    "data": FIT["data"] | {"client_id": "client"},
    "epoch": {k: v for k, v in OF_WINDOW["epoch"].items() if k != "once"} | {"max_windows": 2, "min_separation": 1},
}
STREAM = FIT | {"stream": EPOCH | {"start": "first", "memory": 4}}


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"epoch": None}, "epoch is required; give a section with name, column"),
        ({"recurring": None}, "recurring is required; give a section with memory and previous"),
        ({"recurring": {"previous": "before"}}, "recurring.memory is required; give how many windows"),
        ({"ledger": None}, "ledger is required for algorithm windows, so that no window"),
        ({"dp_lloyd": None}, "dp_lloyd is required"),
        ({"state": "rolls"}, "state must be a folder on a local disk, for privacy.unit client only, got"),
        (
            _BY_CLIENT | {"ledger": "postgresql://me@db/x"},
            "state is required for privacy.unit client with a ledger on a server",
        ),
        (
            _BY_CLIENT | {"state": "s3://rolls"},
            "state must be a folder on a local disk, for privacy.unit client only, got",
        ),
        ({"algorithm": "dp_lloyd"}, "epoch was removed; use `dapple stream`, whose section stream has"),
        ({"tree": {"radius": 2}}, "tree isn't supported for algorithm windows; remove it, or use algorithm central_"),
        ({"quality": {"share": 0.1}}, "quality isn't supported for algorithm windows"),
    ],
)
def test_refused_windows(changes, start):
    with pytest.raises(ConfigError) as error:
        fit_of({name: value for name, value in (WINDOW | changes).items() if value is not None})
    assert str(error.value).startswith(start)


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        (
            {"algorithm": "windows"},
            "algorithm no longer accepts windows; use `dapple stream`, whose section stream has",
        ),
        ({"algorithm": "k_means"}, "algorithm must be 'auto', "),
        ({"epoch": EPOCH}, "epoch isn't supported in a stream; leave it out, since each window starts"),
        ({"quality": {"share": 0.1}}, "quality isn't supported for a stream"),
    ],
)
def test_refused_streams(changes, start):
    with pytest.raises(ConfigError) as error:
        stream_config(STREAM | changes)
    assert str(error.value).startswith(start)


def test_a_window_is_known_by_its_epoch():
    job = fit_of(WINDOW)
    assert job.weights == (16, 6, 3, 2)
    assert job.folders == ("dt", ("2026-01-15", "2026-01-08", "2026-01-01"))
    assert job.covers == EPOCH | {"window": "2026-01-15", "index": 2, "weights": [16, 6, 3, 2]} | {
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    assert job.at(1).covers == job.covers | {"window": "2026-01-08", "index": 1}
    assert validated(FIT).covers is None


def test_a_stream_writes_the_jobs_of_its_windows():
    previous = {"previous": "out/2026-01-08", "memory": 4}
    assert stream_config(STREAM).window(2, "out/") == fit_of(WINDOW | {"recurring": previous})
    assert stream_config(STREAM).template == fit_of(WINDOW | {"recurring": {"previous": "first", "memory": 4}}).at(0)
