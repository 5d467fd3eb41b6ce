"""SHA-256 digests of a job's files, by threads of the launcher or by workers; the launcher holds few at a time.

Someone who guesses a file can confirm it by its digest. So digests are as private as rows: they are stored in a private
folder beside the staging folder, and deleted once they are read.
"""

import collections
import concurrent.futures
import functools
import itertools
import logging
import secrets
from collections.abc import Generator, Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import shuffles_in_memory
from dapple_dp.pipelines.tables.client_staging import private_folder
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.stores import AT_ONCE, join
from dapple_dp.transforms.tables.file_seal import FileSeal, content_digest
from dapple_dp.transforms.tables.listing import (
    FileList,
    ListedFile,
    Listing,
    write_listing,
)
from dapple_dp.transforms.tables.read import DIGEST_BYTES, FILES_IN_BLOCK, DigestFiles

_LOGGER = logging.getLogger(__name__)
FileDigests = Generator[tuple[ListedFile, str], None, None]
_BATCH_FILES, _BATCH_BYTES = 16, 1 << 20
_AT_ONCE = 64
"""Batches that wait for a thread or for earlier batches."""


def file_digests(files: FileList, options: PipelineOptions, folder: str) -> FileDigests:
    """Yields every file with its SHA-256 (64 hex digits), in the order of `FileList.by_file`.

    Each file must be unchanged since the listing, both before and after it is read. Files of a prepared folder aren't
    read: their digests come from the manifest, see `fingerprint.content_fingerprint`.

    Args:
      files: files of the job.
      options: Beam options.
      folder: the run's private staging folder.

    Raises:
      InputError: if a file can't be read or was changed.
    """
    return _by_threads(files) if shuffles_in_memory(options) else _by_workers(files, options, folder)


def _known(each: ListedFile) -> str:
    """SHA-256 of a prepared folder's file, from the manifest; empty for other files."""
    return FileSeal.of_text(each.seal).content


def _by_threads(files: FileList) -> FileDigests:
    """Yields the SHA-256 of every file by real path, reading several batches at once."""
    pending: collections.deque[tuple[list[ListedFile], concurrent.futures.Future[list[str]]]] = collections.deque()
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        for batch in _batches(files.by_file()):
            pending.append((batch, pool.submit(_contents, batch)))
            if len(pending) == _AT_ONCE:
                first, found = pending.popleft()
                yield from zip(first, found.result(), strict=True)
        for batch, rest in pending:
            yield from zip(batch, rest.result(), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(files: Iterator[ListedFile]) -> Iterator[list[ListedFile]]:
    """Groups small files, since handing one to a thread takes as long as reading it; large files stay alone."""
    batch: list[ListedFile] = []
    n_bytes = 0
    for file in files:
        batch.append(file)
        n_bytes += FileSeal.of_text(file.seal).size
        if n_bytes >= _BATCH_BYTES or len(batch) == _BATCH_FILES:
            yield batch
            batch, n_bytes = [], 0
    if batch:
        yield batch


def _contents(batch: list[ListedFile]) -> list[str]:
    return [_known(each) or content_digest(each.file, each.seal, each.path).hex() for each in batch]


def _by_workers(files: FileList, options: PipelineOptions, folder: str) -> FileDigests:
    """Yields the SHA-256 of every file by real path; the launcher reads 32 bytes per file from a private folder."""
    unknown = (each for each in files.by_file() if not _known(each))
    first = next(unknown, None)
    with private_folder(folder) as beside:
        # A fresh name, since workers of a killed attempt may still write.
        place = join(beside, secrets.token_hex(8))
        if first is not None:
            listing = write_listing(itertools.chain([first], unknown), f"{place}.jsonl")
            _LOGGER.info("computing the digests of all input files, in a pipeline of its own")
            run_graph(functools.partial(_build, listing=listing, place=place), options, TRUSTED_ZONE)
        digests = _staged_digests(place)
        for each in files.by_file():
            yield each, _known(each) or next(digests)


def _build(root: beam.Pipeline, listing: Listing, place: str) -> None:
    """Adds the pass over all bytes to a pipeline."""
    _ = root | "Digests" >> DigestFiles(listing=listing) | "Stage" >> PrivateSink(write=_write_block, places=(place,))


def _write_block(block: tuple[int, bytes], place: str) -> None:
    number, digests = block
    write_bytes(f"{place}-{number}", digests)


def _staged_digests(place: str) -> Iterator[str]:
    """Reads the digests that `_build` wrote, in the order of the listing; raises InputError if some are missing."""
    for block in itertools.count():
        path = f"{place}-{block}"
        content = untrusted.read_bytes(path, untrusted.staged_refusal(path), DIGEST_BYTES * FILES_IN_BLOCK)
        for start in range(0, DIGEST_BYTES * FILES_IN_BLOCK, DIGEST_BYTES):
            digest = content[start : start + DIGEST_BYTES]
            if len(digest) != DIGEST_BYTES:
                raise untrusted.staged_refusal(path).because("fewer digests than files")
            yield digest.hex()
