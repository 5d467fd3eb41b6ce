"""Instructions for installation: one page has them, and all others agree with it.

On the day Dapple is on an index, `docs/start/install.md` changes, and these tests name every other place.
"""

import pathlib
import re

import pytest

from dapple_dp.schemas.errors import what_installs
from tests.unit.test_docs_paths import FOLDERS, PAGES, ROOT

INSTALL = ROOT / "docs" / "start" / "install.md"
LINES = """```console
python3 -m venv ~/dapple-env && . ~/dapple-env/bin/activate
pip install .
dapple --version
```
"""
SENTENCE = "Dapple is on no package index yet"
FROM_AN_INDEX = re.compile(
    r"(?:pip|pipx|uv tool|uv pip|uvx)\s+(?:install\s+|add\s+|run\s+)?(?:-\S+\s+)*['\"`]?dapple[-_]dp"
)
OF_THE_CHECKOUT = re.compile(r"pip install\s+(?:-\S+\s+)*['\"]?\.(?:\[\w+\])?['\"]?(?:\s|$)", re.MULTILINE)


def texts() -> dict[pathlib.Path, str]:
    """All pages, code, scripts and files of deployments, but this one."""
    code = [path for name in (*FOLDERS, "deploy") for path in (ROOT / name).rglob("*")]
    kinds = (".md", ".py", ".sh", ".yaml", ".ipynb", ".txt")
    files = {*PAGES, ROOT / "CHANGELOG.md", ROOT / "setup.py", ROOT / "deploy" / "Dockerfile", *code}
    found = (path for path in files if path.suffix in kinds or path.name == "Dockerfile")
    return {path: path.read_text() for path in found if path.is_file() and path != pathlib.Path(__file__)}


def test_the_page_says_that_there_is_no_index_and_then_the_three_lines():
    text = INSTALL.read_text()
    assert text.index(SENTENCE) < text.index(LINES) < text.index("## Systems")


def test_only_that_page_says_so():
    assert [path for path, text in texts().items() if "index yet" in " ".join(text.split())] == [INSTALL]


def test_nobody_is_sent_to_an_index():
    assert [str(path) for path, text in texts().items() if FROM_AN_INDEX.search(" ".join(text.split()))] == []


@pytest.mark.parametrize(
    "text",
    [
        "pipx install dapple-dp",
        "uv tool install dapple-dp",
        "pip install 'dapple-dp[aws]'",
        "pip install -U dapple_dp",
        "uvx dapple-dp",
    ],
)
def test_a_way_to_an_index_is_seen(text):
    assert FROM_AN_INDEX.search(text)


def test_all_pages_that_make_an_environment_have_the_same_three_lines():
    """The README and first pages, too: a block with the second line has the other two beside it."""
    blocks = re.compile(r"^```console\n.*?^```$", re.DOTALL | re.MULTILINE)
    for path in PAGES:
        for block in blocks.findall(path.read_text()):
            if OF_THE_CHECKOUT.search(block) and "[" not in block:
                assert f"{block}\n" == LINES, path


def test_the_version_in_the_name_of_the_wheel_is_that_of_the_metadata():
    version = re.search(r'version="([^"]+)"', (ROOT / "setup.py").read_text())[1]
    wheels = {found for text in texts().values() for found in re.findall(r"dapple_dp-([\w.]+)-py3-none-any", text)}
    assert wheels == {version}


def test_every_extra_of_the_metadata_is_on_the_page():
    said = (ROOT / "setup.py").read_text()
    extras = set(re.findall(r'^    "(\w+)": (?:\[|\w+_REQUIRES)', said, re.MULTILINE)) - {"test"}
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", INSTALL.read_text(), re.MULTILINE)
    assert extras == set(re.findall(r"`(\w+)`", " ".join(rows)))


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("aws", "pip install 'apache-beam[aws]<2.78,>=2.76.0' 'obstore<0.13,>=0.12'"),
        ("hdfs", "pip install 'apache-beam[hadoop]<2.78,>=2.76.0'"),
        ("delta", "pip install 'deltalake<2,>=1.6'"),
        ("iceberg", "pip install 'pyiceberg[pyarrow]<0.13,>=0.12'"),
        ("kafka", "pip install 'confluent-kafka<3,>=2.12'"),
        ("plot", "pip install 'matplotlib>=3.9'"),
        ("postgres", "pip install 'psycopg[binary]<4,>=3.2'"),
    ],
)
def test_missing_extras_are_installed_by_the_names_of_libraries(extra, command):
    """True whether Dapple came from an index, a wheel or a checkout: Dapple's own name is not in it."""
    assert what_installs(extra) == command


def test_metadata_of_older_tools_are_read(monkeypatch):
    """Their requirements have other quotes and more spaces; one extra may bring two libraries."""
    needs = ["numpy", "boto3 >=1.40 ; extra == 'aws'", 'jax>=0.8; extra == "jax"', "s3fs; extra == 'aws'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needs)
    assert what_installs("aws") == "pip install 'boto3 >=1.40' 's3fs'"


def test_readme_and_first_page_have_them():
    for path in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        assert LINES in path.read_text(), path
