"""Rows for a profile: the cluster, numbers inside public bounds, categories as text or code, and the client.

All of it is private. Invalid rows are removed before any computation, so that one NaN can't spoil a cluster.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.profile.plan import UNITS_PER_HALF_RANGE, ProfilePlan
from dapple_dp.schemas.tables import columns
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.encoded_column import category_type
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.numerics import cluster_profile
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.tables.shard_rows import read_valid_rows, shard_name

CLUSTER, CLIENT, RANK = "cluster", "client", "rank"
"""Columns besides those of `number` and `category`: int64, client ids without nulls, uint64."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileParams:
    """Parameters for reading rows, and the statistics to compute of them.

    Attributes:
      model: assigns rows to clusters.
      contract: of the features; by client if that is the unit.
      plan: the releases.
    """

    model: NearestCenters
    contract: TableContract
    plan: ProfilePlan

    @property
    def others(self) -> dict[str, pa.DataType]:
        """Columns to read besides the features, the client id last, as `shard_rows` reads them."""
        client = (str(self.contract.client_id),) if self.plan.by_client else ()
        return dict.fromkeys(self.plan.numeric, pa.float64()) | dict.fromkeys(
            (*self.plan.categorical, *client), pa.string()
        )


def number(index: int) -> str:
    """Returns the name of the column that holds numeric column `index`: float64, inside its bounds."""
    return f"number{index}"


def category(index: int) -> str:
    """Returns the name of the column for categorical column `index`: int64 codes, -1 if not listed; or large_string."""
    return f"category{index}"


def check_columns(schema: pa.Schema, where: str, plan: ProfilePlan) -> None:
    """Checks names and types of the columns to describe.

    Args:
      schema: of a file, Hive partition columns included.
      where: name of the file in messages.
      plan: names the columns.

    Raises:
      SchemaMismatchError: if a column is missing, ambiguous or of a type that can't be described.
    """
    for name in plan.numeric:
        _check_numeric(columns.plain_type(columns.find(schema, name, where).type), name, where)
    for name in plan.categorical:
        _check_categorical(columns.plain_type(columns.find(schema, name, where).type), name, where)


def _check_numeric(kind: pa.DataType, name: str, where: str) -> None:
    if not columns.is_numeric(kind):
        raise columns.mismatch(name, where, "be numeric", str(kind), "describe it in profile.categorical")


def _check_categorical(kind: pa.DataType, name: str, where: str) -> None:
    if category_type(kind) is None:
        rule, remedy = "hold strings, integers or booleans", "cast it or describe it in profile.numeric"
        raise columns.mismatch(name, where, rule, str(kind), remedy)


def read_profile_rows(shard: ShardRef, params: ProfileParams) -> Iterator[pa.Table]:
    """Yields the rows of one shard, a few thousand at a time: `cluster`, `number…`, `category…` and `client`.

    Raises:
      InputError: for invalid rows if they aren't dropped, wrong types or missing columns, naming file, row
        group and column.
    """
    contract = dataclasses.replace(params.contract, by_client=False)
    where, plan = shard_name(shard), params.plan
    for rows in read_valid_rows(shard, contract, params.others):
        numbers = {name: _numbers(rows.others.column(name), name, where) for name in plan.numeric}
        texts = {name: _texts(rows.others.column(name), name, where) for name in plan.categorical}
        client = rows.others.column(str(contract.client_id)) if plan.by_client else None
        valid = _valid(numbers, texts, contract, client, where, len(rows.points))
        kept = slice(None) if valid.all() else valid
        found: dict[str, object] = {CLUSTER: params.model.labels(rows.points[kept])}
        for index, (name, column) in enumerate(plan.numeric.items()):
            found[number(index)] = cluster_profile.clip(numbers[name][kept], column.lower, column.upper)
        for index, (name, listed) in enumerate(plan.categorical.items()):
            text = texts[name].filter(pa.array(valid))
            found[category(index)] = text if listed.texts is None else _codes(text, listed.texts)
        if client is not None:
            found[CLIENT] = client.filter(pa.array(valid))
        yield pa.table(found)


def _numbers(column: pa.ChunkedArray, name: str, where: str) -> NDArray[np.floating]:
    """Returns numbers, NaN for nulls."""
    _check_numeric(column.type, name, where)
    return columns.floats(column)


def _texts(column: pa.ChunkedArray, name: str, where: str) -> pa.ChunkedArray:
    _check_categorical(column.type, name, where)
    return column.cast(pa.large_string())


def _codes(texts: pa.ChunkedArray, listed: tuple[str, ...]) -> NDArray[np.int64]:
    """Returns the index of each text in the vocabulary, -1 for others."""
    found = pc.index_in(texts, value_set=pa.array(listed, pa.large_string()))
    return pc.fill_null(found, -1).to_numpy().astype(np.int64)


def _valid(
    numbers: dict[str, NDArray[np.floating]],
    texts: dict[str, pa.ChunkedArray],
    contract: TableContract,
    client: pa.ChunkedArray | None,
    where: str,
    n_rows: int,
) -> NDArray[np.bool_]:
    """Returns a mask of the rows that have all values; refuses others unless they are to be dropped."""
    masks = {name: np.isfinite(values) for name, values in numbers.items()}
    masks |= {name: pc.is_valid(values).to_numpy() for name, values in texts.items()}
    if client is not None:
        masks[str(contract.client_id)] = pc.is_valid(client).to_numpy()
    valid = np.ones(n_rows, dtype=np.bool_)
    for name, mask in masks.items():
        if contract.on_invalid_rows is InvalidRows.FAIL and not mask.all():
            rule = "hold finite numbers only" if name in numbers else "hold a value in every row"
            got = "a null, NaN or infinity" if name in numbers else "a null"
            raise InputError(
                f"column {name!r} of {where} must {rule}, got {got}; correct the data or set data.on_invalid_rows to "
                "drop."
            )
        valid &= mask
    return valid


def exact_sums(rows: pa.Table, params: ProfileParams, clients: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Returns all exact sums of some rows, in the order of the plan's.

    Args:
      rows: whose units are bounded.
      params: the sums to compute.
      clients: index of each row's client; None if rows are the unit.

    Returns:
      int64, shape (plan.size,).
    """
    plan = params.plan
    labels = rows.column(CLUSTER).to_numpy()
    parts = [cluster_profile.cell_counts(labels, plan.n_clusters, None)]
    if clients is not None:
        parts.append(cluster_profile.cell_counts(labels, plan.n_clusters, clients))
    for index, column in enumerate(plan.numeric.values()):
        values = rows.column(number(index)).to_numpy()
        units = cluster_profile.centered_units(values, column.lower, column.upper, UNITS_PER_HALF_RANGE)
        parts.append(cluster_profile.cluster_sums(labels, units, plan.n_clusters))
    for index, listed in enumerate(plan.categorical.values()):
        if listed.texts is not None:
            codes = rows.column(category(index)).to_numpy()
            held, n_values = codes >= 0, len(listed.texts)
            cells = labels[held] * n_values + codes[held]
            owners = None if clients is None else clients[held]
            parts.append(cluster_profile.cell_counts(cells, plan.n_clusters * n_values, owners))
    return np.concatenate(parts)
