"""`python -m deploy.sbom FILE [EXTRA ...]`: what a build of Dapple consists of, as a CycloneDX document with digests.

It lists the pins that `pip install --require-hashes` takes: those of `requirements.txt` and of the extras that are
named. It is made by `cyclonedx-bom`, which Dapple does not install (`python -m tests.own_environments sbom` makes an
environment with it), needs no network, and is the same bytes for the same pins.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXTRAS = {path.stem: path for path in sorted((ROOT / "deploy" / "requirements").glob("*.txt"))}
EXTRAS["postgres"] = ROOT / "requirements-postgres.txt"


def pins(extras: list[str]) -> str:
    """Lines of all requirements, those that several extras bring once."""
    found: dict[str, str] = {}
    for path in (ROOT / "requirements.txt", *(EXTRAS[each] for each in extras)):
        lines = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        for block in re.findall(r"^\S[^\n]*(?:\n +--hash[^\n]*)*\n", lines, re.MULTILINE):
            found.setdefault(block.partition("==")[0], block)
    return "".join(found[name] for name in sorted(found))


def document(extras: list[str]) -> dict[str, Any]:
    """The document; raises CalledProcessError if the library cannot make it."""
    words = ["requirements", "-", "--output-reproducible", "--of", "JSON", "--spec-version", "1.6"]
    command = [sys.executable, "-m", "cyclonedx_py", *words]
    done = subprocess.run(command, input=pins(extras), capture_output=True, text=True, check=True, timeout=300)
    made: dict[str, Any] = json.loads(done.stdout)
    (version,) = re.findall(r'version="([^"]+)"', (ROOT / "setup.py").read_text())
    own = {"type": "application", "bom-ref": "dapple-dp", "name": "dapple-dp", "version": version}
    made["metadata"]["component"] = own | {"purl": f"pkg:pypi/dapple-dp@{version}"}
    refs = [each["bom-ref"] for each in made["components"]]
    made["dependencies"] = [{"ref": "dapple-dp", "dependsOn": sorted(refs)}, *({"ref": each} for each in sorted(refs))]
    return made


def _extra(name: str) -> str:
    # Not by `choices`: argparse would compare them with the empty list, too.
    if name not in EXTRAS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(sorted(EXTRAS))}, got {name!r}")
    return name


def main() -> None:
    """Writes the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("extras", nargs="*", type=_extra, metavar="EXTRA", help=f"of {', '.join(sorted(EXTRAS))}")
    given = parser.parse_args()
    given.file.write_text(json.dumps(document(given.extras), indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
