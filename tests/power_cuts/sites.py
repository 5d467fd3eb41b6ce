"""Calls of durable writers in the product, found in the source, and recorded as they are made.

A recorded process has its calls wrapped as they are imported, so that a trace of system calls shows which place in the
source each of them comes from.
"""

import ast
import builtins
import functools
import importlib.abc
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("dapple_dp", "pipelines", "schemas", "transforms")
WRITERS = {
    "create",
    "create_key",
    "delete_key",
    "end_key",
    "flush",
    "link_in_place",
    "make_folder",
    "make_folders",
    "make_key",
    "put_in_place",
    "put_whole",
    "remove_files",
    "write_bytes",
    "write_listing",
    "write_once",
}
"""Functions of `transforms/files` and `transforms/privacy/key_files.py`."""
OF_MODULES = {
    "os": {"link", "makedirs", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "truncate", "unlink"},
    "shutil": {"copy", "copyfile", "copytree", "move", "rmtree"},
    "new_file": {"rename"},
    "STORE": {"create", "delete", "make_folder", "put", "put_new", "rename"},
}
OF_LEDGERS = {"reserve", "start", "commit", "void", "set_limit"}
_MAKES = re.compile(r"O_CREAT|^'[wax]")
BEGIN, END = "/power-cut/begin/", "/power-cut/end/"
"""What a recorded process looks for where a call begins and ends."""
_WRAPPER = "__power_cut_site__"


def is_site(call: ast.Call) -> bool:
    """Returns whether a call is one of a durable writer, by its name."""
    function = call.func
    if isinstance(function, ast.IfExp):
        return any(is_site(ast.Call(each, call.args, [])) for each in (function.body, function.orelse))
    if ast.unparse(function) in ("open", "os.open"):
        return bool(_MAKES.search(", ".join(map(ast.unparse, call.args[1:]))))
    if isinstance(function, ast.Name):
        return function.id in WRITERS
    if not isinstance(function, ast.Attribute):
        return False
    owner = ast.unparse(function.value)
    if owner in OF_MODULES:
        return function.attr in OF_MODULES[owner] | (WRITERS if owner == "new_file" else set())
    return function.attr in OF_LEDGERS and ("ledger" in owner.lower() or function.attr == "set_limit")


def name_of(path: str, call: ast.Call) -> str:
    """FILE:LINE:FUNCTION of a site."""
    return f"{path}:{call.lineno}:{ast.unparse(call.func).split('(')[0]}"


@functools.cache
def sites() -> tuple[str, ...]:
    """All sites of the product, in the order of its files."""
    found = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            calls = [each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Call)]
            found += sorted({name_of(path, each) for each in calls if is_site(each)}, key=_line)
    return tuple(found)


def _line(site: str) -> int:
    return int(site.split(":")[1])


class _Wrapped(ast.NodeTransformer):
    def __init__(self, path: str):
        self._path = path

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not is_site(node):
            return node
        where = ast.copy_location(ast.Constant(name_of(self._path, node)), node)
        name = ast.copy_location(ast.Name(_WRAPPER, ast.Load()), node)
        return ast.copy_location(ast.Call(name, [where, node.func, *node.args], node.keywords), node)


class _Loader(importlib.abc.SourceLoader):
    """Reads a module of the product with its sites wrapped."""

    def __init__(self, path: str):
        self._path = path

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        return pathlib.Path(path).read_bytes()

    def source_to_code(self, data: Any, path: Any = "<string>") -> CodeType:
        tree = _Wrapped(str(pathlib.Path(path).relative_to(ROOT))).visit(ast.parse(data))
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        place = ROOT.joinpath(*fullname.split(".")).resolve()  # links lead to the packages beside `dapple_dp`
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.exists():
                folders = [str(place)] if file.name == "__init__.py" else None
                spec = importlib.util.spec_from_file_location(
                    fullname, file, loader=_Loader(str(file)), submodule_search_locations=folders
                )
                return spec
        return None


def tell() -> None:
    """From now on, modules of the product report where their calls of durable writers begin and end."""
    setattr(builtins, _WRAPPER, _told)
    sys.meta_path.insert(0, _Finder())


def _told(site: str, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
    os.access(BEGIN + site, os.F_OK)
    try:
        found = function(*args, **more)
    except BaseException:
        os.access(f"{END}{site}:failed", os.F_OK)
        raise
    os.access(END + site, os.F_OK)
    return found
