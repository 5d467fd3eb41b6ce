"""Every statistic of both units on rows of many kinds, down to the last integer.

Rounds, retries and windows add up what was computed elsewhere or before, so the same rows must give the same integers
in every version, on every machine, however rows are split. Digests are of little-endian int64; rows and centers are
multiples of powers of two. What the integers mean is tested by hand in the files beside this one.
"""

import hashlib

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.core.statistics import (
    client_chunks,
    clients,
    lattice,
    rows,
)
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.differences import Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound


def numbers(name, *shape):
    """Multiples of 2**-19 in [-1, 1)."""
    found = KeyStream(bytes(32), encode_label(name)).residues(1 << 20, int(np.prod(shape)))
    return found.reshape(shape) * 2.0**-19 - 1.0


def digest(values):
    assert values.dtype == np.int64
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<i8").tobytes()).hexdigest()[:10]


def scene(name):
    """Rows by client, a frame, and centers on its lattice: few and many features, clients, centers and moves."""
    n_features, sizes, n_centers, spread = {
        "few": (3, [1, 2, 7, 2500, 40, 40, 300], 3, 1.0),
        "many": (40, [1] * 30 + [5] * 60 + [90, 700], 40, 0.25),
        "box": (1, [3] * 200 + [1, 1100], 2, 3.0),
    }[name]
    points = spread * numbers(f"points {name}", sum(sizes), n_features)
    frame = Frame(Lattice(numbers(f"middle {name}", n_features) / 8.0, 1.25))
    centers = lattice.quantize(0.5 * numbers(f"centers {name}", n_centers, n_features), frame.lattice, 20)
    if name == "box":
        frame = Frame.of_box(Box(-2.0, 2.5), n_features)
    return ClientBlock(points, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)), frame, centers


def statistics(module, block, frame, centers):
    """All statistics of one unit by name, the bounds of clients far within what many of them reach."""
    of_rows, norm = module is rows, frame.lattice.clipping_norm
    tight = 1.0 if of_rows else 0.375
    assigner = Assigner(centers)
    neighborhoods = Neighborhoods(centers, 1 << 19 if centers.shape[1] < 40 else 1 << 20)
    found = {"count": module.count(block), "norms": module.norm_histogram(block, frame.lattice.center)}
    for relative in (False, True):
        bound = norm**2 if of_rows else 0.5 if relative else 2.0
        found[f"scatter {relative}"] = module.outer_product(block, frame, bound, relative=relative)
        bound = 1.0 if of_rows else tight if relative else 2.5
        found[f"histogram {relative}"] = module.histogram(block, frame, assigner, bound, relative=relative)
        near = neighborhoods._replace(shortens=relative)
        limits = (near.radius, 1.0) if of_rows else (1 << 18, tight)
        found[f"relative {relative}"] = module.relative_sums(block, frame, near, *limits)
    for name in ("mean_sums_and_counts", "means_of_means", "clipped_sums_and_counts"):
        bounds = {"mean_sums_and_counts": (0.3, 0.6), "means_of_means": (0.75, 2.0), "clipped_sums_and_counts": (3, 4)}
        limits = (norm, 1.0) if of_rows else bounds[name]
        found[name] = getattr(module, name)(block, frame, assigner, *limits)
    found["directions"] = module.direction_sums(block, frame, centers, 1 << 17, tight)
    found["quality"] = module.quality(block, frame, centers, squared_bound(centers, 1.5 * 2.0**19))
    found["gain"] = module.gain(block, frame, centers[:1], centers, 1 << 37)
    return found


PINNED = {
    ("few", "rows"): {
        "count": "4e8cac843b",
        "norms": "0d714344c6",
        "scatter False": "741c785ae8",
        "histogram False": "6afda1a762",
        "relative False": "0bdd65c126",
        "scatter True": "741c785ae8",
        "histogram True": "6afda1a762",
        "relative True": "cce324854e",
        "mean_sums_and_counts": "fa2540fe50",
        "means_of_means": "fa2540fe50",
        "clipped_sums_and_counts": "fa2540fe50",
        "directions": "3e3dd4c847",
        "quality": "bf9662c8f5",
        "gain": "13f21566cf",
    },
    ("few", "clients"): {
        "count": "46fed70119",
        "norms": "acba3e71c7",
        "scatter False": "a9c40952ce",
        "histogram False": "b98465e249",
        "relative False": "f711a7a7fe",
        "scatter True": "eab8ed84d2",
        "histogram True": "ac94fd0057",
        "relative True": "94862e1490",
        "mean_sums_and_counts": "d8acba308c",
        "means_of_means": "04463e277e",
        "clipped_sums_and_counts": "cd8e332a40",
        "directions": "17a541c87f",
        "quality": "a9e65f64c7",
        "gain": "47700ced57",
    },
    ("many", "rows"): {
        "count": "902acf547b",
        "norms": "145accc68a",
        "scatter False": "b270cb56c9",
        "histogram False": "c13943e37a",
        "relative False": "f4c693a545",
        "scatter True": "b270cb56c9",
        "histogram True": "c13943e37a",
        "relative True": "9da763e7f2",
        "mean_sums_and_counts": "1be0aef01a",
        "means_of_means": "1be0aef01a",
        "clipped_sums_and_counts": "1be0aef01a",
        "directions": "98047f8ade",
        "quality": "6c98c26788",
        "gain": "e48d1e9cbd",
    },
    ("many", "clients"): {
        "count": "cc5a0a6f5c",
        "norms": "8c2f8cc695",
        "scatter False": "b3d9abf109",
        "histogram False": "5db39fe0c8",
        "relative False": "77a76d81b6",
        "scatter True": "11bf9775ad",
        "histogram True": "691265b657",
        "relative True": "70894ffe7f",
        "mean_sums_and_counts": "444d4573c6",
        "means_of_means": "b59adfbf17",
        "clipped_sums_and_counts": "dbb31c663e",
        "directions": "0d4e1f7f32",
        "quality": "e3a7e8c786",
        "gain": "4acc6f4d5c",
    },
    ("box", "rows"): {
        "count": "134cabfe57",
        "norms": "65aea27680",
        "scatter False": "cc9ab2793a",
        "histogram False": "c5246f2649",
        "relative False": "23ef5c4b6d",
        "scatter True": "cc9ab2793a",
        "histogram True": "c5246f2649",
        "relative True": "c49ead1c66",
        "mean_sums_and_counts": "48656fbb7a",
        "means_of_means": "48656fbb7a",
        "clipped_sums_and_counts": "48656fbb7a",
        "directions": "5f3020c5f4",
        "quality": "3fa339cfa4",
        "gain": "ce955d936c",
    },
    ("box", "clients"): {
        "count": "24f8ff175e",
        "norms": "4339be83f7",
        "scatter False": "c45e2c4488",
        "histogram False": "5f6b23ff0e",
        "relative False": "c4dcee41fb",
        "scatter True": "c02bdde3f7",
        "histogram True": "db173ee302",
        "relative True": "21dae5b577",
        "mean_sums_and_counts": "cd9bad0b06",
        "means_of_means": "c878a89387",
        "clipped_sums_and_counts": "c7d9269e65",
        "directions": "c7ee81594c",
        "quality": "da7a18fcf4",
        "gain": "047a54961f",
    },
}


@pytest.mark.parametrize("module", [rows, clients], ids=["rows", "clients"])
@pytest.mark.parametrize("name", ["few", "many", "box"])
def test_integers_are_pinned(name, module):
    found = {kind: digest(values) for kind, values in statistics(module, *scene(name)).items()}
    assert found == PINNED[name, module.__name__.rsplit(".", 1)[-1]]


@pytest.mark.parametrize("module", [rows, clients], ids=["rows", "clients"])
def test_sizes_of_blocks_change_no_integer(monkeypatch, module):
    """Blocks are for the cache only."""
    block, frame, centers = scene("few")
    before = {kind: digest(values) for kind, values in statistics(module, block, frame, centers).items()}
    monkeypatch.setattr(lattice, "BLOCK_ROWS", 100)
    monkeypatch.setattr(lattice.row_blocks, "__defaults__", (100,))
    for each in (client_chunks, clients):
        monkeypatch.setattr(each, "CLIENT_BLOCK_ROWS", 128)
    monkeypatch.setattr(client_chunks, "_MAX_CELLS", 64)
    monkeypatch.setattr(client_chunks, "_MAX_BINS", 64)
    after = {kind: digest(values) for kind, values in statistics(module, block, frame, centers).items()}
    assert after == before


@pytest.mark.parametrize("n_centers", [2, 33])
def test_projected_rows_are_pinned(n_centers):
    block, frame, _ = scene("many")
    projection = Projection.from_basis(numbers("basis", 40, 3) / 8.0)
    centers = np.trunc(numbers("projected", n_centers, 3) * 2.0**19)
    assigner = Assigner(centers, projection)
    found = rows.histogram(block, frame, assigner, 1.0, relative=False)
    sums = rows.sums_and_counts(block, frame, assigner, 1.25, 1.0)
    assert digest(np.concatenate([found, sums])) == {2: "442de7d228", 33: "e19f230cef"}[n_centers]
