"""The command that cuts a version: all files that name one change together, and the changelog keeps its order."""

import re
import subprocess

import pytest

from deploy import cut

CHANGELOG = """# Changelog

## [Unreleased]

### Fixed

- C.

### Added

- A.

### Fixed

- D.

## [0.1.0] - 2026-01-01

- Z.
"""


KINDS = (".md", ".py", ".yaml", ".cff", ".toml", ".txt", ".service")
DATED = """## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- A.

### Fixed

- C.
- D.

## [0.1.0] - 2026-01-01

- Z.
"""


def test_unreleased_changes_become_those_of_the_version_in_order():
    assert cut.dated(CHANGELOG, "0.2.0", "2026-12-01") == f"# Changelog\n\n{DATED}"


def test_a_summary_before_the_sections_stays_before_them():
    found = cut.dated(CHANGELOG.replace("### Fixed", "In short.\n\n### Fixed", 1), "0.2.0", "2026-12-01")
    assert found == f"# Changelog\n\n{DATED}".replace("### Added", "In short.\n\n### Added", 1)


@pytest.mark.parametrize("changelog", ["## [Unreleased]\n", "## [Unreleased]\n\n### News\n\n- A.\n"])
def test_an_empty_or_unknown_list_is_refused(changelog):
    with pytest.raises(ValueError, match="sections under Unreleased must be some of Added, Changed"):
        cut.dated(changelog, "0.2.0", "2026-12-01")


@pytest.mark.parametrize("version", ["0.1", "0.1.0", "0.0.9", "v9.0.0", "0.2.0rc1", "9.0.0-a1", cut.current()])
def test_a_version_is_later_than_that_of_the_sources(version):
    with pytest.raises(ValueError, match=r"VERSION must be later than \d"):
        cut.texts(version)


def test_a_version_is_tried_out_before_it_is_final(tmp_path, monkeypatch):
    for path, text in cut.texts("99.0.0a1").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(cut, "ROOT", tmp_path)
    assert cut.current() == "99.0.0a1"
    for later in ("99.0.0a2", "99.0.0rc1", "99.0.0"):
        found = cut.texts(later)
        assert all(later in text and "99.0.0a1" not in text for text in found.values())
    with pytest.raises(ValueError, match=r"later than 99\.0\.0a1"):
        cut.texts("98.0.0")


def test_no_file_of_the_repository_still_names_the_old_version():
    """But results and pins, and the changelog, which are of their time."""
    changed, old = cut.texts("99.0.0"), cut.current()
    listed = subprocess.run(["git", "ls-files"], cwd=cut.ROOT, capture_output=True, text=True, check=True).stdout
    for path in listed.splitlines():
        of_time = path.startswith(("requirements", "benchmarks/", "deploy/requirements/", "tests/", "CHANGELOG"))
        if path in changed:
            assert "99.0.0" in changed[path], path
        elif not of_time and path.endswith(KINDS):
            assert not re.search(rf"dapple\S*{re.escape(old)}\b", (cut.ROOT / path).read_text()), path


def test_the_changelog_of_the_repository_can_be_cut_again():
    """Whatever is listed as unreleased at the moment, nothing included."""
    listed = (
        (cut.ROOT / "CHANGELOG.md")
        .read_text()
        .replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n\n- C.\n", 1)
    )
    found = cut.dated(listed, "99.0.0", "2026-12-01")
    assert found.index("## [Unreleased]") < found.index("## [99.0.0] - 2026-12-01") < found.index("\n- C.\n")
    assert found.index("\n- C.\n") < found.index(f"## [{cut.current()}] - ")
