"""Names of those who send messages: of a client its id, of a shard its place among the rows of its party.

A name never goes out; what goes out is a keyed digest of it, which is another one in each round of each run.
"""

import functools
import os

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from schemas.tables.client_block import ClientBlock
from schemas.tables.shard import ShardRef
from transforms.numerics.privacy.keystream import encode_label
from transforms.tables import client_ids


def place_of(shard: ShardRef, root: str) -> bytes:
    """Where a shard is among the rows of a party, the same however paths are spelled.

    Args:
      shard: not the empty one.
      root: where the rows of the party are; empty if a path stands for itself.
    """
    return encode_label(_below(shard.path, root), shard.row_group)


@functools.lru_cache(maxsize=4096)
def _below(path: str, root: str) -> str:
    """A path as it is seen from the root; links on a local disk are followed."""
    if not root:
        return path
    if FileSystems.get_scheme(path) in (None, "file"):
        return os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return path.removeprefix(root).lstrip("/")


def owners_of(block: ClientBlock) -> list[bytes]:
    """Ids of a block's clients as bytes; raises TypeError if the block lacks them."""
    if block.clients is None:
        raise TypeError("messages must be formed of a block with client ids; read it from a shard.")
    return client_ids.bytes_of(client_ids.canonical(pa.chunked_array([block.clients])))
