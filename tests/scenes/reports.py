"""Report parameters for tests, and coins that a test decides."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
from apache_beam.internal import pickler
from numpy.typing import NDArray

from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from dapple_dp.transforms.numerics.reports.coins import KeyedCoins
from dapple_dp.transforms.numerics.reports.design import design
from tests.scenes.lake import KEY as RUN_KEY

KEY = bytes(range(16))
VECTORS_FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "report-vectors.json"
LARGEST_WORD = (1 << 64) - 1


def settings(path: str = "lake", **sections: Any) -> dict[str, Any]:
    """An `encode` job as plain data; `name__key` sets one value of a section."""
    found: dict[str, Any] = {
        "data": {"path": path, "features": "x", "client_id": "client_id"},
        "n_clusters": 3,
        "experimental": True,
        "privacy": {"unit": "client", "epsilon": 4.0},
        "tree": {"radius": 10.0},
        "reports": {"min_batch": 1000},
    }
    for name, value in sections.items():
        section, _, key = name.rpartition("__")
        (found.setdefault(section, {}) if section else found)[key] = value
    return found


def parameters(n_features: int = 4, **sections: Any) -> ReportParameters:
    """Public parameters of such a job."""
    config = EncodeConfig.model_validate(settings(**sections))
    return design(config, tuple(f"x[{index}]" for index in range(n_features)), KEY)


class ForcedCoins:
    """Coins whose choices are decided in advance: a position per purpose, and what the other words are.

    Args:
      positions: by purpose: (choice, positions of shape (n,)).
      others: the word of all other purposes.
    """

    def __init__(self, positions: dict[int, tuple[Any, NDArray[np.int64]]], others: int = 0):
        self._positions = positions
        self._others = others

    def words(self, purpose: int, n_words: int) -> NDArray[np.uint64]:
        if purpose not in self._positions:
            n_reports = len(next(iter(self._positions.values()))[1])
            return np.full((n_reports, n_words), self._others, dtype=np.uint64)
        choice, places = self._positions[purpose]
        drawn = np.zeros((len(places), n_words), dtype=np.uint64)
        drawn[:, 0] = np.where(places < choice.near, 0, LARGEST_WORD).astype(np.uint64)
        drawn[:, 1] = np.where(places < choice.near, places, places - choice.near)
        return drawn


def vectors() -> dict[str, Any]:
    """Content of docs/report-vectors.json, by which encoders in other languages are checked."""
    chosen = {
        "nested": {"tree__depth": 4, "reports__variant": "nested"},
        "leaves": {"tree__depth": 4, "reports__variant": "leaves"},
        "paper": {"tree__depth": 3, "reports__variant": "paper"},
    }
    return {name: _vectors(parameters(3, privacy__epsilon=1.5, **more)) for name, more in chosen.items()}


def _vectors(public: ReportParameters) -> dict[str, Any]:
    rng = np.random.default_rng(12)
    points = np.vstack([rng.uniform(-6, 6, (4, 3)), [[0.0, 0.0, 0.0], [30.0, 0.0, -40.0]]])
    nonces = np.array([0, 1, 2**63 + 5, 2**64 - 1, 12345678901234567890, 42], dtype=np.uint64)
    seeds = [bytes([index]) * 16 for index in range(len(points))]
    reports = report_encoder.encode(points, public, nonces, KeyedCoins(seeds))
    lattice = report_encoder.lattice_points(points, public.radius)
    starts = codebook.roots(public.key, nonces)
    width = codebook.code_width(public.n_features + 2)
    first = codebook.codeword_bits(starts, np.ones((1, 1), dtype=np.int64), width)[:, 0]
    return {
        "parameters": json.loads(public.to_json()),
        "planes": codebook.planes(public.key, public.depth, public.n_features).tolist(),
        "reports": [
            {
                "point": points[index].tolist(),
                "lattice": lattice[index].astype(int).tolist(),
                "lifted": report_encoder.lift(lattice)[index].astype(int).tolist(),
                "code": int(report_encoder.tree_codes(lattice, public)[index]),
                "nonce": str(nonces[index]),
                "root": str(starts[index]),
                "subset": int(codebook.draw_subsets(starts, public.depth, public.even_subsets)[index]),
                "signs": np.packbits(codebook.rotation_signs(starts, width)[index] < 0, bitorder="little")
                .tobytes()
                .hex(),
                "codeword_1": np.packbits(first[index], bitorder="little").tobytes().hex(),
                "coins": {
                    str(purpose): [str(word) for word in KeyedCoins(seeds[index : index + 1]).words(purpose, 8)[0]]
                    for purpose in (0, 1, 3)
                },
                "index": int(reports.indices[index]),
            }
            for index in range(len(points))
        ],
    }


def _raw(bits: NDArray[Any]) -> str:
    """Bits as bytes in hexadecimal, the lowest bit first."""
    return np.packbits(bits, bitorder="little").tobytes().hex()


if __name__ == "__main__":
    VECTORS_FILE.write_text(json.dumps(vectors(), indent=1) + "\n")


def assert_key_stays_out(encode: Any) -> None:
    """A step that was set up gives a graph no key, and does nothing before it is set up again."""
    encode.setup()
    pickled = pickler.dumps(encode)
    assert RUN_KEY not in pickled
    assert pickler.loads(pickled)._key is None
    with pytest.raises(RuntimeError, match="between setup and teardown"):
        next(pickler.loads(pickled).process(ShardRef("lake.parquet", 0, 5)))
