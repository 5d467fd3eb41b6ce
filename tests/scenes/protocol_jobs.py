"""One small job of each algorithm, for tests that must hold for all of them: a new algorithm gets its line here."""

from collections.abc import Mapping
from typing import Any

from dapple_dp.schemas.choices import Algorithm

_DAY = "2026-01-01"
_IN_A_BOX = {"dp_lloyd": {"domain": [-8, 8], "steps": 5}, "clipping": {"norm": "domain", "center": "none"}}
JOBS: Mapping[str, Mapping[str, Any]] = {
    Algorithm.FEDDP_KMEANS: {},
    Algorithm.CENTRAL_TREE: {
        "tree": {"radius": 8.0, "depth": 6},
        "server_data": "none",
        "clipping": {},
        "lloyd": {"steps": 2},
    },
    Algorithm.DP_LLOYD: _IN_A_BOX,
    Algorithm.DP_MEDIANS: _IN_A_BOX,
    Algorithm.SPHERICAL: {
        "server_data": "none",
        "clipping": {"norm": 8.0},
        "spherical": {"steps": 4},
        "justification": {"privacy.unit": "made for tests"},
    },
    Algorithm.K_PROTOTYPES: {
        "data__features": ["a", "b", "c"],
        "server_data": "none",
        "clipping": {},
        "k_prototypes": {"domain": {"a": [-8, 8]}},
        "encode": {
            name: {"kind": "one_hot", "vocabulary": listed} for name, listed in (("b", ["x"]), ("c", ["x", "y"]))
        },
    },
    "windows": {
        "data__name": "days",
        "server_data": "none",
        "ledger": "ledger",
        "recurring": {"previous": "first", "memory": 4},
        "epoch": {"name": "e", "column": "dt", "first": _DAY, "windows": 9, "window": _DAY, "once": "x"},
    }
    | _IN_A_BOX,
}
"""What `tests.scenes.lake.job` changes for an algorithm."""
ALONE = tuple(each for each in JOBS if each != "windows")
"""Algorithms of jobs that follow no other run; one reads codes, which `tests.scenes.lake` writes if asked."""


def settings_of(algorithm: str) -> dict[str, Any]:
    """Settings of an algorithm, itself among them."""
    return {"algorithm": str(algorithm)} | dict(JOBS[algorithm])
