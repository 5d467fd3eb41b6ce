"""What a run says of its input: a keyed digest that means nothing to those without the key."""

import hashlib
import hmac

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from schemas.config import FitConfig, config_digest
from transforms.keys import read_key
from transforms.read import list_files


def keyed_fingerprint(config: FitConfig, key_uri: str) -> str:
    """HMAC of the input's file list, sizes and times of change under the run key.

    Without the key it says nothing about the input; with it, it tells whether the input is the same.
    """
    data = config.data
    entries = [config_digest(config)]
    for path in list_files(data.path, data.partition_values()):
        try:
            found = FileSystems.match([path])[0].metadata_list[0]
            entries.append(f"{path}\t{found.size_in_bytes}\t{found.last_updated_in_seconds}")
        except (BeamIOError, IndexError):
            entries.append(path)
    return hmac.new(read_key(key_uri), "\n".join(entries).encode(), hashlib.sha256).hexdigest()
