"""Rows of local files for a job that runs in one process: listed and read as a graph does, and kept in memory."""

from collections.abc import Iterator
from typing import NamedTuple

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError, InputError, RunnerError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.loop import NO_MEMORY
from dapple_dp.transforms.files.stores import is_local
from dapple_dp.transforms.rounds import machine
from dapple_dp.transforms.tables.read import check_total, list_shards
from dapple_dp.transforms.tables.shard_rows import read_blocks
from dapple_dp.transforms.tables.source import Source

MOST_ROWS = 1_000_000
"""Rows of a job that runs in one process."""


class LocalRows(NamedTuple):
    """Rows in local files.

    Attributes:
      source: the files, with their listing in a private folder.
      counted: True if the rows have been counted, before invalid ones were dropped.
    """

    source: Source
    counted: bool = False

    def shards(self, contract: TableContract) -> list[ShardRef]:
        """Lists the shards of all files, in the order of the listing; no row is read but those of CSV files.

        Raises:
          ConfigError: for a file in a store.
          InputError: for no rows, too many, or a file that can't be read.
          RunnerError: if the rows need more memory than there is.
        """
        shards, n_rows = [], 0
        for shard in list_shards(self.source, contract):
            if not is_local(shard.file):
                raise ConfigError(
                    "data.path is in a store, and --runner=InProcess reads local files only; leave the flag out, or "
                    "copy the files."
                )
            shards.append(shard)
            n_rows += shard.n_rows
            if n_rows > MOST_ROWS:
                raise InputError(
                    f"data.path has more than {MOST_ROWS:,} rows, the limit of --runner=InProcess; leave the flag out."
                )
        if not self.counted:
            check_total(n_rows, self.source.may_be_empty)
        if not machine.has_room(sum(shard.n_bytes for shard in shards)):
            raise RunnerError(NO_MEMORY)
        return shards

    def blocks(self, contract: TableContract) -> tuple[ClientBlock, ...]:
        """Reads all rows, each once; errors as in `shards` and `read_blocks`."""
        return tuple(self._read(contract))

    def _read(self, contract: TableContract) -> Iterator[ClientBlock]:
        for shard in self.shards(contract):
            yield from read_blocks(shard, contract)
