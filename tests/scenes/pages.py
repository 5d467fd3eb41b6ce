"""Blocks of code on the pages, and the fit that a block is, or is a part of."""

import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from dapple_dp.schemas.kmeans.fit_config import FITS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ANY_FENCE = re.compile(r"^ *```(\S*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
"""Those within lists, too."""
PYTHON = ("python", "{code-cell}")


def blocks(*languages: str, fence: re.Pattern[str] = FENCE) -> Iterator[tuple[str, pathlib.Path, str]]:
    """All blocks in some languages: name, page and text."""
    for page in PAGES:
        for number, (language, text) in enumerate(fence.findall(page.read_text())):
            if language in languages:
                yield f"{page.relative_to(ROOT)}-{number}", page, text


def run(page: pathlib.Path, folder: pathlib.Path) -> str:
    """Runs the Python of a page, piece by piece as one file, in a folder; what it prints."""
    (folder / "page.py").write_text(
        "".join(text for language, text in FENCE.findall(page.read_text()) if language == "python")
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def calls(text: str) -> Iterator[list[str]]:
    """Words of every command of a block, without comments, assignments and what the shell fills in."""
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        tokens = shlex.shlex(re.sub(r"\$\([^)]*\)", "", line), posix=True, punctuation_chars=True)
        tokens.whitespace_split = True
        for ends, words in itertools.groupby(tokens, lambda token: token in ("&&", "||", "|", ";")):
            words = list(itertools.dropwhile(re.compile("[A-Z_]+=").match, words))
            if words and not ends:
                yield words[: words.index(">")] if ">" in words else words


WITHOUT_SERVER = {name for name, fit in FITS.items() if fit.has_domain} | {"central_tree"}
BASE: dict[str, Any] = {
    "experimental": True,
    "algorithm": "feddp_kmeans",
    "data": {"path": "lake", "features": ["age", "hours"], "client_id": "client_id"},
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1.0e-6},
    "server_data": {"path": "server.parquet"},
    "clipping": {"norm": "server_radius", "client_rows": 50},
}
"""What a part of a job on a page is a part of."""


def is_of_a_fit(part: Mapping[str, Any]) -> bool:
    """Returns whether a block is a private fit, or a part of one: no stream, and no job of another word."""
    others = ("stream", "parties", "sweep", "windows", "reports", "model")
    return part.get("algorithm") != "r_dpcfl" and not any(name in part for name in others)


def completed(part: Mapping[str, Any]) -> dict[str, Any]:
    """A whole `fit` job of which the page shows a part."""
    needs_server = part.get("algorithm") not in WITHOUT_SERVER
    base = {name: BASE[name] for name in BASE if needs_server or name not in ("server_data", "clipping")}
    job = base | dict(part) | {"data": BASE["data"] | part.get("data", {})}
    if "recurring" in job:
        job["lloyd"] = {"steps": 1}
    return job
