"""`python -m deploy.cut VERSION`: writes the next version into every file that names one, and dates the changelog.

What was listed under `Unreleased` is then that of the version, its sections in the order of Keep a Changelog. Look at
the difference, run the tests, and commit it as one commit; `python -m deploy.build` makes the files of the release.
"""

import argparse
import datetime
import pathlib
import re

from packaging.version import Version

ROOT = pathlib.Path(__file__).resolve().parents[1]
ORDER = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
_NAMED = {
    "setup.py": 'version="{}"',
    "CITATION.cff": "version: {}",
    "docs/start/install.md": "dapple_dp-{}-py3",
    **dict.fromkeys(("deploy/compose.yaml", "deploy/federation/compose.yaml"), "image: dapple-{}"),
    **dict.fromkeys((f"deploy/kubernetes/base/{name}.yaml" for name in ("flink", "job", "stream")), "image: dapple-{}"),
}
"""How files name the version; images are `dapple-ROLE:VERSION`."""


def current() -> str:
    """The version of the sources."""
    (found,) = re.findall(rf'version="({_VERSION})"', (ROOT / "setup.py").read_text())
    return str(found)


def texts(version: str) -> dict[str, str]:
    """Every file that names the version, by path, as it is after the cut.

    Args:
      version: the new one, later than that of the sources.

    Raises:
      ValueError: if it is no version, or no later one; or if a file does not name the version of the sources.
    """
    old = current()
    if not re.fullmatch(_VERSION, version) or Version(version) <= Version(old):
        raise ValueError(f"VERSION must be later than {old}, got {version!r}; write it as 1.2.3 or 1.2.3a1.")
    found = {}
    for path, form in _NAMED.items():
        text = (ROOT / path).read_text()
        pattern = re.escape(form).replace(r"\{\}", rf"([\w-]*:)?{re.escape(old)}")
        if not re.search(pattern, text):
            raise ValueError(f"{path} must name version {old}, got another one; correct it.")
        found[path] = re.sub(pattern, lambda match: match[0].replace(old, version), text)
    return found


def dated(changelog: str, version: str, day: str) -> str:
    """The changelog with an empty `Unreleased` above the new version, whose summary comes before its sections.

    These are in order, each once.
    """
    head, _, rest = changelog.partition("## [Unreleased]\n")
    own, mark, before = rest.partition("\n## [")
    sections: dict[str, str] = {}
    summary, *parts = re.split(r"^### ", own, flags=re.MULTILINE)
    for part in parts:
        name, _, entries = part.partition("\n")
        sections[name] = sections.get(name, "") + entries.strip() + "\n"
    unknown = sections.keys() - set(ORDER)
    if unknown or not sections:
        raise ValueError(f"sections under Unreleased must be some of {', '.join(ORDER)}, got {sorted(unknown)}.")
    listed = "\n".join(f"### {name}\n\n{sections[name]}" for name in ORDER if name in sections)
    summary = f"{summary.strip()}\n\n" if summary.strip() else ""
    return f"{head}## [Unreleased]\n\n## [{version}] - {day}\n\n{summary}{listed}{mark}{before}"


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    version, changelog = parser.parse_args().version, ROOT / "CHANGELOG.md"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        found = texts(version) | {changelog.name: dated(changelog.read_text(), version, today)}
    except ValueError as error:
        raise SystemExit(str(error)) from None
    for path, text in found.items():
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
