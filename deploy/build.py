"""`python -m deploy.build FOLDER [--sbom FILE]`: a version, built twice in two places and equal bit by bit.

FOLDER then has the source archive, the wheel that is built from it, `verify_release.py`, the list of parts if one is
given (`python -m deploy.sbom`), and `SHA256SUMS` of all of them, as `sha256sum -c` reads it. It is not there if the two
builds differ. Each build has a folder, a home and a time zone of its own, and the environment's setuptools.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping

from deploy.local import downloads
from deploy.local.worker_environment import sources

EPOCH = 315_532_800
"""The time of every file in an archive: the first that a ZIP file can say."""
SUMS = "SHA256SUMS"
_ZONES = ("UTC", "Asia/Tokyo")
_TIMEOUT = 900


class UnequalError(Exception):
    """Two builds of the same sources differ; the message names the files."""


def build(folder: pathlib.Path) -> list[pathlib.Path]:
    """The source archive, and the wheel that is built from it.

    Args:
      folder: new; the builds are made in folders of their own, of which nothing stays.

    Raises:
      UnequalError: if two builds differ; then the folder is not there.
      subprocess.CalledProcessError: if one fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        read = {path.relative_to(downloads.ROOT): (path.read_bytes(), os.access(path, os.X_OK)) for path in sources()}
        places = [pathlib.Path(temporary) / f"{'deeper/' * index}build" for index in range(len(_ZONES))]
        made = [_built(read, place, zone) for place, zone in zip(places, _ZONES, strict=True)]
        first, second = ({path.name: digest(path) for path in each} for each in made)
        if first != second:
            different = sorted(name for name, _ in first.items() ^ second.items())
            raise UnequalError(f"two builds must be equal bit by bit, got other bytes in {', '.join(different)}.")
        folder.mkdir(parents=True)
        return [pathlib.Path(shutil.copy(path, folder)) for path in made[0]]


def digest(path: pathlib.Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _built(read: Mapping[pathlib.Path, tuple[bytes, bool]], place: pathlib.Path, zone: str) -> list[pathlib.Path]:
    """One build, from a copy of the sources as they were read: bytes, and whether they may be run."""
    copy, out = place / "source", place / "out"
    for path, (content, runs) in read.items():
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if runs else 0o644)
    _run(["setup.py", "-q", "sdist", "-d", str(out)], copy, zone)
    [archive] = out.glob("dapple_dp-*.tar.gz")
    _normalize(archive)
    with tarfile.open(archive) as file:
        file.extractall(place / "unpacked", filter="data")
    [unpacked] = (place / "unpacked").iterdir()
    words = ["-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    _run([*words, "-w", str(out), str(unpacked)], place, zone)
    return sorted(out.iterdir())


def _normalize(archive: pathlib.Path) -> None:
    """Has an archive say nothing of who made it when: members by name, of nobody, at `EPOCH`."""
    packed = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for each in sorted(old.getmembers(), key=lambda member: member.name):
            each.mtime, each.uid, each.gid, each.uname, each.gname, each.pax_headers = EPOCH, 0, 0, "", "", {}
            each.mode = 0o755 if each.mode & 0o100 else 0o644
            new.addfile(each, old.extractfile(each) if each.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as zipped:
        zipped.write(packed.getvalue())


def _run(words: list[str], place: pathlib.Path, zone: str) -> None:
    home = place / "home"
    home.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "SOURCE_DATE_EPOCH"))}
    variables = kept | {"HOME": str(home), "TZ": zone, "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run([sys.executable, *words], cwd=place, env=variables, umask=0o022, check=True, timeout=_TIMEOUT)


def main() -> None:
    """Builds, and writes the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="new")
    parser.add_argument("--sbom", type=pathlib.Path, help="the document of `python -m deploy.sbom`")
    given = parser.parse_args()
    made = build(given.folder)
    for path in (downloads.ROOT / "docs" / "verify_release.py", *([given.sbom] if given.sbom else [])):
        made.append(pathlib.Path(shutil.copyfile(path, given.folder / path.name)))
    text = "".join(f"{digest(path)}  {path.name}\n" for path in made)
    (given.folder / SUMS).write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
