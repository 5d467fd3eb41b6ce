"""What a client has answered under its secret, kept beside it: no round of a run is answered twice in different ways.

Masks and keys follow from the secret and from the nonce of a run. Whoever replays a nonce in other folders asks for
them again, for another list of who is present. So the notes lie where the secret does, not in a folder that is shared.
"""

import hashlib

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError, ProtocolError
from transforms.files.octets import make_folder
from transforms.files.write_once import write_once
from transforms.numerics.privacy.keystream import encode_label
from transforms.privacy.keys import create_key

SUFFIX = ".answered"
_SEAL_KEY = "seal.key"
_NOISE_KEY = "noise.key"


class Answered:
    """Notes of one client.

    Args:
      secret_uri: where the client's secret lies; the notes are in a folder of that name and `SUFFIX`, for their owner.
      nonce: of the run.
      client: name of the client; empty for whoever unmasks.
    """

    def __init__(self, secret_uri: str, nonce: bytes, client: str):
        self._folder, self._nonce, self._client = secret_uri + SUFFIX, nonce, client

    def seal_uri(self) -> str:
        """The place of a key of this client alone, which is made where there is none: with it the client seals files.

        Raises:
          ConfigError: if it cannot be made.
        """
        return self._own_key(_SEAL_KEY)

    def noise_uri(self) -> str:
        """The place of a key of this client alone, as `seal_uri`: shares of noise are drawn under keys derived from it.

        Clients that share a secret do not share this key.

        Raises:
          ConfigError: if it cannot be made.
        """
        return self._own_key(_NOISE_KEY)

    def _own_key(self, name: str) -> str:
        """The place of a key of this client alone, which is made where there is none."""
        uri = FileSystems.join(self._folder, name)
        make_folder(self._folder)
        if not FileSystems.exists(uri):
            try:
                create_key(uri, "the key beside masked.secret_uri")
            except ConfigError:
                if not FileSystems.exists(uri):
                    raise
        return uri

    def note(self, round_path: str, what: str, content: bytes) -> None:
        """Notes what is answered, before it is.

        Args:
          round_path: of the round; empty for the run.
          what: is answered: a broadcast, a list, a sum.
          content: of it.

        Raises:
          ProtocolError: if something else was answered in this round of this run.
          ConfigError: if nothing can be noted beside the secret.
        """
        label = encode_label(self._nonce, self._client, round_path, what)
        path = FileSystems.join(self._folder, hashlib.sha256(label).hexdigest())
        try:
            make_folder(self._folder)
            write_once(path, hashlib.sha256(content).hexdigest().encode(), private=True)
        except ProtocolError as error:
            raise ProtocolError(
                f"a round must have one {what} under one nonce, got a second one; nothing is answered for it, open a "
                "new run."
            ) from error
        except (OSError, BeamIOError) as error:
            raise ConfigError(
                f"masked.secret_uri must lie in a folder where notes can be kept beside it, got {self._folder} that "
                "cannot be written; choose another place."
            ) from error
