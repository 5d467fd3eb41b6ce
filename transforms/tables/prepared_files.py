"""Files of a client-sharded data set: each written completely or not at all by one worker, and listed in a manifest."""

import hashlib
import io
import os
import secrets

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.prepared_layout import (
    MANIFEST_FILE,
    RUNS_KEY,
    PreparedFile,
    PreparedManifest,
    encode_runs,
)
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, is_local, join

ROW_GROUP_ROWS = 1 << 16
"""Most rows of a row group."""
_ROW_GROUP_BYTES = 1 << 25
_FEWEST_ROWS = 1 << 11


class _HashingFile(io.RawIOBase):
    """Writes to a file, and computes its digest and size."""

    def __init__(self, path: str):
        self._file = STORE.create(path)
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, content: bytes) -> int:  # type: ignore[override]
        self._file.write(content)
        self.digest.update(content)
        self.size += len(content)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def write_prepared(
    folder: str,
    name: str,
    ids: pa.Array,
    points: NDArray[np.floating],
    offsets: NDArray[np.int64],
    contract: TableContract,
) -> PreparedFile:
    """Writes one file, with no client across row groups; a second attempt replaces it with an equal one.

    Args:
      folder: on any Beam filesystem; exists.
      name: of the file.
      ids: client id of each row, sorted, length n_rows.
      points: shape (n_rows, n_features), in the same order.
      offsets: int64, shape (n_clients + 1,): rows offsets[i]:offsets[i + 1] are client i's.
      contract: names of the columns.
    """
    row_bytes = points.shape[1] * points.itemsize + 1
    max_rows = int(np.clip(_ROW_GROUP_BYTES // row_bytes, _FEWEST_ROWS, ROW_GROUP_ROWS))
    from dapple_dp.transforms.numerics.tables import partition

    groups = partition.row_groups(offsets, max_rows)
    table = _table(ids, points, contract, {RUNS_KEY: encode_runs(groups.runs.tolist())})
    path = join(folder, name)
    local = is_local(path)
    # Object stores show an object when it is complete; a disk shows a file before that.
    target = join(folder, f".{name}.{secrets.token_hex(8)}") if local else path
    try:
        with _HashingFile(target) as file:
            _write_row_groups(file, table, groups.cuts, str(contract.client_id))
        if local:
            os.replace(target, path)
    except BaseException:
        if local and os.path.exists(target):
            os.unlink(target)
        raise
    return PreparedFile(name, len(ids), file.size, file.digest.hexdigest())


def _write_row_groups(file: _HashingFile, table: pa.Table, cuts: NDArray[np.int64], client_id: str) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(
        file, table.schema, compression="none", use_dictionary=[client_id], write_statistics=False
    ) as writer:
        for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)


def _table(
    ids: pa.Array, points: NDArray[np.floating], contract: TableContract, metadata: dict[bytes, bytes]
) -> pa.Table:
    """Returns rows as they are stored; lists are packed, since that makes decoding three times as fast."""
    columns = {str(contract.client_id): ids}
    if contract.feature_list is not None:
        from dapple_dp.transforms.files.formats import packed_rows

        columns[contract.feature_list], packing = packed_rows.pack(points, contract.feature_list)
        metadata = metadata | packed_rows.metadata_of(packing)
    else:
        columns |= dict(zip(contract.features, map(pa.array, np.ascontiguousarray(points.T)), strict=True))
    return pa.table(columns).replace_schema_metadata(metadata)


def read_manifest(folder: str) -> PreparedManifest | None:
    """Reads the manifest of a prepared folder and checks it against the files; None without a manifest.

    Raises:
      InputError: if the manifest has changed or the folder holds other files.
    """
    path = join(folder.rstrip("/"), MANIFEST_FILE)
    try:
        if not STORE.exists(path):
            return None
        manifest = PreparedManifest.from_json(untrusted.read_bytes(path, _unreadable(path)), path)
        found = list(STORE.list(folder.rstrip("/") + "/"))
    except OSError as error:
        raise _unreadable(path).because() from error
    sizes = {os.path.basename(each.path): each.size for each in found if each.path.endswith(".parquet")}
    manifest.check_files(sizes, folder)
    if any(os.path.basename(file.name) != file.name for file in manifest.files):
        raise InputError(f"{path} must only name files in its own folder; run prepare again.")
    return manifest


def _unreadable(path: str) -> Refusal:
    rule = f"{path} must be readable"
    return Refusal(kind=InputError, rule=rule, remedy="check the permissions or run prepare again")
