"""Digests of what jobs have left in folders, for `tests.released_bytes`."""

import hashlib
import json
import pathlib
import re
import tempfile
from typing import Any

import yaml

FOLDER = pathlib.Path(tempfile.gettempdir()) / "dapple-released-bytes"
"""Where everything is; not part of a digest of plain data."""
VOLATILE = {"versions", "files", "config_digest", "input_fingerprint", "libraries", "started", "manifest_digest"}
VOLATILE |= {"head", "warnings"}
"""Names of fields that say which program ran, where or when, or what a page shows, which is left out; the head of a
ledger is a digest of entries with times."""
PLAIN = {".json": json.loads, ".yaml": yaml.safe_load}
"""Files that count by content."""
LEFT_OUT = (".html", ".svg", ".png")
_PROGRAM = re.compile(r"(?<=Software: )dapple [^,]*")
"""The version of the program in `deployment.yaml`."""
Digests = dict[str, str]


def steady(content: Any) -> Any:
    """Plain data without volatile fields and without the working folder."""
    if isinstance(content, dict):
        return {str(name): steady(value) for name, value in content.items() if name not in VOLATILE}
    if isinstance(content, list):
        return [steady(each) for each in content]
    return _PROGRAM.sub("", content.replace(str(FOLDER), "")) if isinstance(content, str) else content


def digest_of(path: pathlib.Path) -> str:
    """SHA-256 of a released file."""
    raw = path.read_bytes()
    if path.suffix in PLAIN:
        raw = json.dumps(steady(PLAIN[path.suffix](raw)), sort_keys=True, default=str).encode()
    return hashlib.sha256(raw).hexdigest()


def digests_of(folder: pathlib.Path) -> Digests:
    """Digests of all files in a folder, by path; files of one table count together."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in LEFT_OUT)
    parts: dict[str, list[tuple[str, str]]] = {}
    for path in files:
        name = str(path.relative_to(folder))
        parts.setdefault(name.partition(".parquet/")[0], []).append((name, digest_of(path)))
    return {
        name: own[0][1] if len(own) == 1 else hashlib.sha256(repr(own).encode()).hexdigest()
        for name, own in parts.items()
    }
