"""The installed package: metadata, data files, and a command that knows where they are."""

import email
import json
import os
import pathlib
import re
import shutil
import zipfile

import pytest

from dapple_dp.pipelines.command import job_schema
from deploy.cut import current
from tests.scenes import installed

pytestmark = pytest.mark.slow

VERSION = current()
ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
FOLDERS = ("schemas", "transforms", "pipelines", "dapple_dp", "schedule", "examples")


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


@pytest.fixture(scope="module")
def metadata(wheel, names):
    [name] = [each for each in names if each.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as file:
        return email.message_from_bytes(file.read(name))


def test_metadata_are_complete(metadata):
    assert (metadata["Name"], metadata["License-Expression"]) == ("dapple-dp", "Apache-2.0")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith((ROOT / "README.md").read_text()[:40])
    assert {"Summary", "Author", "Keywords", "Requires-Python"} <= set(metadata.keys())
    assert "Typing :: Typed" in metadata.get_all("Classifier")


def test_no_url_leads_nowhere(metadata):
    """Dapple has no page of its own yet, at an index or elsewhere."""
    assert not {"Home-page", "Project-URL", "Download-URL"} & set(metadata.keys())


def test_every_store_and_format_has_an_extra(metadata):
    extras = set(metadata.get_all("Provides-Extra"))
    assert {"aws", "gcp", "azure", "hdfs", "delta", "iceberg"} <= extras
    needs = [each for each in metadata.get_all("Requires-Dist") if each.startswith("apache-beam[")]
    assert {re.match(r"apache-beam\[(\w+)\](?=.*>=2\.76\.0)(?=.*<2\.78)", each)[1] for each in needs} == {
        "aws",
        "azure",
        "gcp",
        "hadoop",
    }


def test_data_files_are_in_the_wheel(names):
    assert "dapple_dp/py.typed" in names
    assert {f"dapple_dp/schedule/{each.name}" for each in (ROOT / "schedule").iterdir() if each.is_file()} <= names
    assert {"dapple_dp/pipelines/page/templates/report.html.j2", "dapple_dp/__init__.pyi"} <= names
    assert "dapple_dp/pipelines/page/templates/report.css" in names


def test_the_kernel_makes_the_wheel_one_for_a_platform_and_all_versions_of_python(wheel, names):
    """Its sources are there, too, since a library that was built from others is not used."""
    kernel = "transforms/numerics/kernel"
    assert {f"dapple_dp/{kernel}/{path.name}" for path in (ROOT / kernel).glob("*.c")} <= names
    if shutil.which("cc"):
        assert f"dapple_dp/{kernel}/_rows.so" in names
        assert wheel.name.startswith(f"dapple_dp-{VERSION}-py3-none-linux_")
    else:
        assert wheel.name == f"dapple_dp-{VERSION}-py3-none-any.whl"


def test_the_installed_packages_use_the_kernel(environment, tmp_path):
    script = "from dapple_dp.transforms.numerics.kernel.library import library\nprint(library() is not None)"
    done = environment.run(environment.python, "-c", script, cwd=tmp_path)
    assert done.stdout == f"{shutil.which('cc') is not None}\n", done.stderr


def test_nothing_else_lies_at_the_top(names):
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dapple_dp"}


def test_the_installed_command_prints_version_schedule_and_schema(environment, tmp_path):
    assert environment.run(environment.dapple, "--version", cwd=tmp_path).stdout == f"dapple {VERSION}\n"
    folder = pathlib.Path(environment.run(environment.dapple, "schedule", cwd=tmp_path).stdout.strip())
    assert folder == environment.packages / "dapple_dp" / "schedule"
    assert os.access(folder / "run_partition.sh", os.X_OK)
    done = environment.run(environment.dapple, "schema", "profile", cwd=tmp_path)
    assert json.loads(done.stdout) == job_schema.job_schema("profile")


def test_the_public_module_shows_its_names_and_no_others(environment, tmp_path):
    script = (
        "import dapple_dp\nprint(dapple_dp.__version__, dir(dapple_dp) == sorted([*dapple_dp.__all__, '__version__']))"
    )
    done = environment.run(environment.python, "-c", script, cwd=tmp_path)
    assert done.stdout == f"{VERSION} True\n", done.stderr


def test_every_public_name_is_there(environment, tmp_path):
    script = (
        "import dapple_dp\nfor name in dapple_dp.__all__: getattr(dapple_dp, name)\nfrom dapple_dp import *\nprint(fit)"
    )
    done = environment.run(environment.python, "-c", script, cwd=tmp_path)
    assert done.stdout.startswith("<function fit"), done.stderr


def test_an_unknown_name_is_an_attribute_error():
    import dapple_dp

    with pytest.raises(AttributeError, match="has no attribute 'DPMeans'"):
        dapple_dp.DPMeans  # noqa: B018


def test_no_message_recommends_a_foreign_package():
    """`dapple` on PyPI is not this project."""
    code = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".yaml")]
    for path in [*PAGES, *code]:
        text = path.read_text()
        assert not re.search(r"(pip|pipx|uv tool|uv pip) install\s+['\"]?dapple(?!-dp)", text), path
        assert not re.search(r"(import|from) dapple\b(?!_dp)", text), path


def test_two_builds_of_one_source_are_one_wheel(wheel, tmp_path, monkeypatch):
    """Whenever they are built: nobody has to set SOURCE_DATE_EPOCH."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    again = installed.dapple_wheel(tmp_path / "again")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
