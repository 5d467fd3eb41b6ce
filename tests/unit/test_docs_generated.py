"""The pages of the reference that follow from the code are up to date, and the README stays short."""

import importlib.util
import pathlib
import re

import pytest

from schemas import errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_README_LINES = 150


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(generated, tmp_path):
    generated.write(tmp_path)
    for page in tmp_path.iterdir():
        committed = ROOT / "docs" / "reference" / page.name
        assert committed.read_text() == page.read_text(), f"run python docs/generated.py to renew {page.name}"


def test_every_setting_is_described(generated):
    for job, model in generated.JOBS.items():
        for name, field in generated._fields(model):
            assert field.description, f"{job}: {name}"


def test_every_error_has_its_exit_code_on_the_page(generated):
    page = generated.exit_codes_page()
    for each in generated._errors():
        assert each is errors.DappleError or f"`{each.__name__}`" in page


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


NOTEBOOKS = [page for page in (ROOT / "docs").rglob("*.md") if "\nfile_format: mystnb\n" in page.read_text()]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_notebooks_that_run_commands_assert_how_these_end(page):
    """A page says `refused` or shows a release, so the build stops where a command ends otherwise."""
    text = page.read_text()
    runs = text.count("subprocess.run(") + text.count("main(")
    assert text.count("assert done.returncode == ") + len(re.findall(r"assert main\(.*\) == 0", text)) == runs
