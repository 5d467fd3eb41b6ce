"""Turns the Adult census rows into a small data lake of silos, with a little public data for the server.

The clients hold people of one employment class, one silo for each pair of occupation and education. The
server holds a few people of that class and more of all others: related to the clients' data, but not drawn
from the same distribution. Columns and bins are chosen by looking at the server's rows alone.

The class is `Private`, by far the largest (22,696 people). The noise that a budget asks for is the same
however many rows there are, so what it costs falls with the square of their number. In a class a tenth as
large, epsilon 1 can hardly beat clustering the server's rows alone, at no privacy cost at all.
"""

import argparse
import dataclasses
import itertools
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dapple_dp.schemas.tables.encoded_column import BinnedColumn, EncodedColumn, OneHotColumn
from dapple_dp.schemas.tables.encoder import Encoder

SOURCE = pathlib.Path(__file__).with_name("adult_census.parquet")
EMPLOYMENT_CLASS = "Private"
SILO_COLUMNS = ("occupation", "education")
# `workclass` chose the rows, `education_num` repeats `education`, `income` is the label of another task.
CATEGORICAL = ("education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")
NUMERIC = ("age", "capital_gain", "capital_loss", "hours_per_week")
N_BINS = 5
SERVER_ROWS_INSIDE = 20
SERVER_ROWS_OUTSIDE = 1000
N_FILES = 4
ROW_GROUPS_PER_FILE = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCoder:
    """Public rules that turn a census row into binary features.

    Attributes:
      levels: for each categorical column its levels; a level that is not listed becomes all zeros.
      edges: for each numeric column the upper ends (inclusive) of all bins but the last, ascending.
    """

    levels: dict[str, list[str]]
    edges: dict[str, NDArray[np.float64]]

    @classmethod
    def learn(cls, rows: pa.Table) -> "FeatureCoder":
        """Levels and quantile bins of public `rows`; equal quantiles are merged into one edge."""
        quantiles = np.arange(1, N_BINS) / N_BINS
        return cls(
            levels={name: sorted(pc.unique(rows[name]).to_pylist()) for name in CATEGORICAL},
            edges={name: np.unique(np.quantile(rows[name].to_numpy(), quantiles)) for name in NUMERIC},
        )

    @property
    def names(self) -> list[str]:
        """Readable names of the features, for example "education Masters" or "hours per week 40 to 45"."""
        coded: list[EncodedColumn] = [
            *(OneHotColumn(column=_words(name), vocabulary=tuple(levels)) for name, levels in self.levels.items()),
            *(BinnedColumn(column=_words(name), edges=tuple(edges.tolist())) for name, edges in self.edges.items()),
        ]
        return list(Encoder(columns=tuple(coded)).labels)

    def encode(self, rows: pa.Table) -> NDArray[np.float32]:
        """Zeros and ones, shape (n_rows, n_features)."""
        one_hot = [rows[name].to_numpy()[:, None] == np.array(levels) for name, levels in self.levels.items()]
        bins = [
            np.searchsorted(edges, rows[name].to_numpy())[:, None] == np.arange(len(edges) + 1)
            for name, edges in self.edges.items()
        ]
        return np.hstack(one_hot + bins).astype(np.float32)


def _words(column: str) -> str:
    """A column's name as people write it."""
    return column.replace("_", " ")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeSummary:
    """Summary of the lake: rows of all clients, names of the features, number of silos, rows of the server."""

    n_rows: int
    feature_names: list[str]
    n_silos: int
    n_server_rows: int


def split_rows(rows: pa.Table, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the clients' rows and of the server's rows; no row is in both."""
    inside = rng.permutation(np.flatnonzero(rows["workclass"].to_numpy() == EMPLOYMENT_CLASS))
    outside = rng.permutation(np.flatnonzero(rows["workclass"].to_numpy() != EMPLOYMENT_CLASS))
    server = np.concatenate([inside[:SERVER_ROWS_INSIDE], outside[:SERVER_ROWS_OUTSIDE]])
    return inside[SERVER_ROWS_INSIDE:], server


def feature_column(points: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """A matrix as one column of lists of equal length."""
    return pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])


def write_clients(folder: pathlib.Path, client_ids: NDArray[np.str_], points: NDArray[np.float32]) -> None:
    """Files of several row groups, rows ordered by client; all rows of a client are in one row group."""
    order = np.argsort(client_ids, kind="stable")
    table = pa.table({"client_id": client_ids[order], "x": feature_column(points[order])})
    starts = np.unique(client_ids[order], return_index=True)[1]
    even = np.linspace(0, len(table), N_FILES * ROW_GROUPS_PER_FILE + 1)
    cuts = np.append(starts, len(table))[np.searchsorted(starts, even)]
    groups = [table.slice(begin, end - begin) for begin, end in itertools.pairwise(cuts)]
    for number in range(N_FILES):
        with pq.ParquetWriter(folder / f"part-{number:04d}.parquet", table.schema) as writer:
            for group in groups[number * ROW_GROUPS_PER_FILE : (number + 1) * ROW_GROUPS_PER_FILE]:
                writer.write_table(group)


def make_lake(output: pathlib.Path, seed: int = 0) -> LakeSummary:
    """Writes `clients/part-*.parquet` (columns client_id, x) and `server.parquet` (column x) to `output`.

    Args:
      output: folder; created if missing, files of the same names are replaced.
      seed: decides which people the server knows.

    Returns:
      The sizes of the lake.
    """
    rows = pq.read_table(SOURCE)
    clients, server = split_rows(rows, np.random.default_rng(seed))
    coder = FeatureCoder.learn(rows.take(server))
    (output / "clients").mkdir(parents=True, exist_ok=True)
    silos = rows.take(clients).select(SILO_COLUMNS).columns
    client_ids = pc.binary_join_element_wise(*silos, ":").to_numpy().astype(np.str_)
    points = coder.encode(rows.take(clients))
    write_clients(output / "clients", client_ids, points)
    pq.write_table(pa.table({"x": feature_column(coder.encode(rows.take(server)))}), output / "server.parquet")
    return LakeSummary(
        n_rows=points.shape[0],
        feature_names=coder.names,
        n_silos=len(np.unique(client_ids)),
        n_server_rows=len(server),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="folder of the lake")
    print(make_lake(parser.parse_args().output))
