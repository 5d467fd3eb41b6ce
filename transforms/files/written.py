"""Files that workers write, and the listing by which the launcher learns their names and digests."""

import json
from typing import NamedTuple

from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError
from schemas.settings.refusal import Refusal
from schemas.settings.run_manifest import Digest, FileName
from transforms.files import gate
from transforms.files.octets import write_bytes

LISTING_FILE = "files.json"


class WrittenFile(NamedTuple):
    """A file in a folder.

    Attributes:
      name: in its folder.
      digest: SHA-256 of its content, 64 hex digits.
    """

    name: str
    digest: str


def write_listing(files: list[WrittenFile], path: str) -> None:
    """Writes names and digests of files, sorted by name, as JSON."""
    write_bytes(path, json.dumps(sorted(files)).encode())


def written_files(folder: str) -> list[WrittenFile]:
    """Files that a pipeline wrote, by the listing `LISTING_FILE` in a folder, which is removed.

    Raises:
      ConfigError: if the launcher cannot see the listing.
    """
    listing = FileSystems.join(folder, LISTING_FILE)
    rule = "--output must be a folder that workers and launcher share"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="choose another place")
    found = gate.read_json(listing, list[tuple[FileName, Digest]], refusal)
    FileSystems.delete([listing])
    return [WrittenFile(*entry) for entry in found]
