"""Messages of split and mix as they arrive from devices: each says which upload it is of, so that none counts twice.

Element: `MessageBatch`. A device that tries again sends its upload again. Of the messages of one upload one copy stays;
an upload that is not whole, or of which there are two that differ, is left out. The name of the upload ends here.
"""

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.reports.split_parameters import SplitParameters
from transforms.numerics.reports.split_and_mix import Messages
from transforms.reports.batches import ReadRowGroups
from transforms.reports.split_messages import SCHEMA, MessageBatch, read_messages

UPLOAD = "upload"
UPLOAD_SCHEMA = pa.schema([pa.field(UPLOAD, pa.uint64(), nullable=False), *SCHEMA])
_N_GROUPS = 1024
Piece = tuple[bytes, MessageBatch]
"""Names of uploads, 8 octets each, and their messages."""


def _read(place: tuple, parameters: SplitParameters) -> Iterator[tuple[int, Piece]]:
    """Messages of a row group by the group of their upload."""
    for rows, batch in read_messages(place, parameters, UPLOAD_SCHEMA):
        uploads, messages = rows.column(UPLOAD).to_numpy().astype("<u8"), batch.messages()
        groups = uploads % np.uint64(_N_GROUPS)
        for group in np.unique(groups).tolist():
            own = groups == group
            yield group, (uploads[own].tobytes(), MessageBatch.of(Messages(*(each[own] for each in messages))))


def _distinct(group: tuple[int, Iterable[Piece]], parameters: SplitParameters) -> Iterator[MessageBatch]:
    """One copy of every whole upload of a group."""
    pieces = list(group[1])
    uploads = np.frombuffer(b"".join(names for names, _ in pieces), dtype="<u8")
    batches = [batch.messages() for _, batch in pieces]
    messages = Messages(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))
    order = np.lexsort((messages.shares, messages.places, uploads))
    starts = np.flatnonzero(np.diff(uploads[order], prepend=uploads[order[:1]] + np.uint64(1)))
    for rows in np.split(order, starts[1:]):
        upload = Messages(messages.places[rows], messages.shares[rows])
        if (kept := one_copy(upload, parameters)) is not None:
            yield MessageBatch.of(Messages(*(each[kept] for each in upload)))


def one_copy(upload: Messages, parameters: SplitParameters) -> NDArray[np.int64] | None:
    """Rows of one copy of an upload; None if it is not whole, or its copies differ.

    Args:
      upload: all messages of one name, sorted by place and share.
      parameters: of the collection.
    """
    n_copies, rest = divmod(len(upload.places), parameters.messages_per_client)
    if rest or not n_copies:
        return None
    copies = [each.reshape(-1, n_copies) for each in upload]
    places = np.repeat(np.arange(parameters.n_places), parameters.n_messages)
    same = all((each == each[:, :1]).all() for each in copies)
    return np.arange(0, len(upload.places), n_copies) if same and (copies[0][:, 0] == places).all() else None


class _ReadPieces(ReadRowGroups):
    """Pipeline root → pieces by group of uploads."""

    _reads = staticmethod(_read)


class ReadUploads(ReadRowGroups):
    """Pipeline root → `MessageBatch`es of all files in a folder, each client's once.

    Privacy: whoever reads uploads is the shuffler, which is trusted to forget them. Cost: one shuffle of all messages,
    20 octets each; memory for those of a 1,024th of all clients.
    """

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads, groups by upload, keeps one copy."""
        pieces = root | "Pieces" >> _ReadPieces(path=self.path, parameters=self.parameters, setting=self.setting)
        return pieces | "ByUpload" >> beam.GroupByKey() | "Distinct" >> beam.FlatMap(_distinct, self.parameters)
