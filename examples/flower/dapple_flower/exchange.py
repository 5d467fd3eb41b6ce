"""A role's copy of the exchange folder, which files another role may send, and the jobs of Dapple that use it.

Nothing here decides on privacy: the jobs `upload`, `aggregate` and `unmask` check every file, and with `parties` every
signature. Here a name that is not the sender's to give is refused, and so is other content for a file that is there.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

_ROUND = r"\d{2}_\w+"
OF_COLLECTOR = rf"plan\.json|{_ROUND}/broadcast\.json"
OF_SERVER = rf"{OF_COLLECTOR}|aggregator\.json|{_ROUND}/sum\.parquet"
"""The server hands on what the collector has written, and adds its own."""
_EXCHANGE, _RELEASED = "exchange", "released"


class RefusedError(ValueError):
    """A file or a summary that another role may not send."""


def of_client(name: str) -> str:
    """Names of files that a client may send."""
    return rf"{_ROUND}/messages/{re.escape(name)}\.sealed"


class Role:
    """A folder of one role: its job files, its keys, and its copy of the exchange.

    Args:
      folder: `exchange` in it holds the copy; `released`, of clients only, the releases.
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder).absolute()
        self.exchange = self.folder / _EXCHANGE
        self.exchange.mkdir(exist_ok=True)

    @property
    def name(self) -> str:
        """Of the party, which is that of its folder."""
        return self.folder.name

    @property
    def collects(self) -> bool:
        """Whether it opens the run and its rounds, under a key of that office."""
        return (self.folder / "collector.yaml").exists()

    def files(self, names: str) -> dict[str, bytes]:
        """Content of the files that have such names."""
        paths = [path for path in self.exchange.rglob("*") if path.is_file()]
        found = {path.relative_to(self.exchange).as_posix(): path for path in paths}
        return {name: path.read_bytes() for name, path in sorted(found.items()) if re.fullmatch(names, name)}

    def take(self, files: Mapping[str, bytes], names: str) -> None:
        """Adds files that another role has sent.

        Raises:
          RefusedError: if a name is none of `names`, or another content is there.
        """
        for name in files:
            if not re.fullmatch(names, name):
                raise RefusedError(f"a file must be one that its sender may write, got {name!r}.")
        for name, content in files.items():
            _write_once(self.exchange / name, content)

    def run(self, job: str, config: str, *flags: str) -> dict[str, Any]:
        """Runs a job of Dapple, the command in the variable DAPPLE; returns its summary.

        Raises:
          RefusedError: if the job fails; what it says goes to this process's stderr.
        """
        words = [*shlex.split(os.environ.get("DAPPLE", "dapple")), job]
        words += ["--config", str(self.folder / config), "--exchange", str(self.exchange), *flags]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RefusedError(f"dapple {job} must succeed at {self.name}, got exit code {done.returncode}.")
        return json.loads(done.stdout.splitlines()[-1])

    def unmask(self, config: str = "client.yaml") -> dict[str, Any]:
        """One step of the clients' role."""
        return self.run("unmask", config, "--released", str(self.folder / _RELEASED))

    def upload(self) -> dict[str, Any]:
        """Masks and seals the statistics of the open round.

        Raises:
          RefusedError: if the job fails, or masks pairwise: shares of masks must not pass the server.
        """
        released = str(self.folder / _RELEASED)
        done = self.run("upload", "client.yaml", "--released", released, "--client", self.name)
        if "leg" in done:
            raise RefusedError("masked.scheme must be shared_secret over Flower, got pairwise; use one secret.")
        return done


def _write_once(path: pathlib.Path, content: bytes) -> None:
    """Writes a file as a whole, or finds the same one there."""
    if path.exists():
        if path.read_bytes() != content:
            raise RefusedError(f"{path.name} must be sent once, got another content for it.")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
