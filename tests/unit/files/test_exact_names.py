"""Files are asked for by their exact names: no function that expands patterns is given a path."""

import ast
import os
import pathlib

import pytest
from apache_beam.io.filesystem import FileMetadata

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.files.file_bytes import files_in, remove_files
from dapple_dp.transforms.files.places import beam
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.privacy.key_files import create_key, delete_key
from tests.scenes import object_store
from tests.scenes import stores as scene

ROOT = pathlib.Path(__file__).resolve().parents[3]
ALLOWED = {
    ("transforms/files/places/beam.py", "FileSystems"): "the store itself",
    ("transforms/tables/source.py", "translate_pattern"): "data.path, which is a pattern by contract",
    ("schemas/tables/feature_patterns.py", "fnmatch"): "names of columns",
    ("transforms/numerics/kernel/library.py", "glob"): "sources of the program",
}
EXPANDING = {"FileSystems", "fnmatch", "glob", "iglob", "rglob", "match_files", "translate_pattern"}
NAMES = [
    *("out[1]", "q?", "a*", "**", "{a,b}", "[", "]", "[!a]", "[*]", "a\\", "\\*", "%2F", "#run", "-rf", " a", "a "),
    *("..a", "a..b", "ä€", "a b", "a'\"", "~", "$HOME", "a&b;c"),
]


def _expanding(source: str) -> set[str]:
    """Names of functions and modules in a source that expand patterns."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {part for each in node.names for part in each.name.split(".")}
    return names & EXPANDING


def test_only_the_store_and_the_matcher_of_data_path_expand_patterns():
    found = {
        (str(path.relative_to(ROOT)), name)
        for package in ("dapple_dp", "pipelines", "schemas", "transforms")
        for path in (ROOT / package).rglob("*.py")
        for name in _expanding(path.read_text())
    }
    assert found - set(ALLOWED) == set()
    assert set(ALLOWED) - found == set(), "these expand nothing any more"
    for source in ("import glob", "from apache_beam.io.filesystems import FileSystems as F", "x.match_files([], p)"):
        assert _expanding(source)


@pytest.fixture(scope="module")
def amazon():
    with object_store.object_store():
        yield f"s3://{object_store.BUCKET}"


@pytest.fixture(params=["disk", "store", "amazon"])
def root(request, tmp_path):
    if request.param == "disk":
        yield str(tmp_path)
    elif request.param == "store":
        with scene.store() as found:
            yield f"{found}bucket"
    else:
        yield f"{request.getfixturevalue('amazon')}/{tmp_path.name}"


@pytest.mark.parametrize("name", [*NAMES, "a\nb", "a\n"])
def test_a_name_is_that_of_one_file(root, name):
    if "\n" in name and not is_local(root):
        for ask in (STORE.get, STORE.delete, STORE.exists, lambda path: STORE.put_new(path, b"")):
            with pytest.raises(ConfigError, match=r"line feed|control character"):
                ask(join(root, name))
        return
    others = {join(root, other): other.encode() for other in ("out1", "q1", "a1", "a", "b", "x", "1", "aa", "a\\1")}
    for path, content in others.items():
        STORE.put(path, content)
    path = join(root, name, "run.key")
    STORE.put(path, b"first")
    assert STORE.exists(path)
    assert STORE.get(path) == b"first"
    assert [file.path for file in STORE.list(join(root, name) + "/")] == [path]
    assert [file.path for file in files_in(join(root, name), ".key")] == [path]
    with pytest.raises(FileExistsError):
        STORE.put_new(path, b"second")
    STORE.rename(path, path + "2")
    STORE.rename(path + "2", path)
    STORE.delete(path)
    STORE.delete(path)
    assert not STORE.exists(path)
    STORE.put(path, b"again")
    remove_files(join(root, name) + "/")
    assert not STORE.exists(path)
    assert {path: STORE.get(path) for path in others} == others


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_deleted_and_its_neighbors_stay(root, name):
    for folder in ("k1", name):
        STORE.make_folder(join(root, folder))
        create_key(join(root, folder, "run.key"))
    delete_key(join(root, name, "run.key"))
    assert not STORE.exists(join(root, name, "run.key"))
    assert STORE.exists(join(root, "k1", "run.key"))


def test_google_is_asked_to_delete_names(monkeypatch):
    """Beam's own `delete` would expand them; the other stores take names."""
    deleted = []

    class Google:
        def _gcsIO(self):  # noqa: N802 - Beam's name
            return self

        def delete_batch(self, paths):
            deleted.extend(paths)
            return [(path, 403 if "kept" in path else None) for path in paths]

        def exists(self, path):
            return "kept" in path

        def metadata(self, path):
            return FileMetadata(path, 0)

    monkeypatch.setattr(beam, "_system", lambda path: Google())
    STORE.delete("gs://b/out[1]/run.key", "gs://b/q?")
    assert deleted == ["gs://b/out[1]/run.key", "gs://b/q?"]
    with pytest.raises(OSError, match="cannot be deleted"):
        STORE.delete("gs://b/kept")
    with pytest.raises(ValueError, match="got a folder"):
        STORE.delete("gs://b/folder/")


def test_a_folder_is_not_deleted_as_a_file(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match=r"directory|permitted"):
        STORE.delete(str(tmp_path / "a"))
    assert os.path.isdir(tmp_path / "a")
