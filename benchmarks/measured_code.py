"""What a command measures, as one digest: the code that it reaches, whatever that is called and wherever it lies.

From the command's `main` names are followed, in and out of functions, to the functions, classes and constants of this
repository that define them. A class counts with all its methods, a string that is a module's name with all of that
module. The digest is that of their syntax trees in the order in which they are met, with a number for each name.

So code that the command can reach changes it. Docstrings, comments, layout, the words of raised errors and of
descriptions, the order of imports, and other functions of the same files do not; nor do new names of functions,
classes, constants, modules and variables inside of functions, or a function that moves to another file. New names of
methods, fields and parameters do, since those of other libraries look alike. What only `getattr` or a
string made of parts finds is not followed, nor are the C files of the kernel.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("benchmarks", "dapple_dp", "deploy", "pipelines", "schemas", "tests", "transforms")
HEADS = ("benchmarks.machine", "benchmarks.measured_code")
"""Modules that write the head of a result and measure nothing."""
_MODULE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)*")
_DESCRIBED = "description"
"""The argument that says in words what a setting is."""
_HOLE = "\0"
_START = "__main__"
"""In place of a name: what happens if the file is started."""
_ALL = ""
"""In place of a name: all that a module defines."""
Target = tuple[str, str]
"""A module and a name in it."""
Chain = tuple[str, ...]
"""A name and the attributes after it, or nothing and a module."""


class Part(NamedTuple):
    """A statement: its tree with holes, and the chains that belong into them."""

    text: str
    chains: tuple[Chain, ...]


class File(NamedTuple):
    """What a file defines: parts by name, what its imports name, and statements that define nothing."""

    names: dict[str, list[Part]]
    imports: dict[str, list[Target]]
    effects: list[Part]


class Code:
    """The code of one state of the repository.

    Args:
      read: the text of a file by its path from the root, or None if there is none.
    """

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._files: dict[str, File | None] = {}

    @classmethod
    def here(cls) -> "Code":
        """The files as they are now."""
        return cls(lambda path: (ROOT / path).read_text() if (ROOT / path).is_file() else None)

    def digest(self, command: str, name: str = "main") -> str:
        """Of what `python -m` of a module measures: 16 hexadecimal digits, or nothing if there is no such module.

        Args:
          command: the module.
          name: of its function from which names are followed; without such a one all of the module counts.
        """
        hashed = hashlib.sha256()
        for text in self.met(command, name):
            hashed.update(text.encode() + _HOLE.encode())
        return hashed.hexdigest()[:16] if self._started(command) else ""

    def met(self, command: str, name: str = "main") -> Iterator[str]:
        """Trees of all that a function of a module reaches, with numbers for names."""
        root = self._started(command)
        order: dict[Target, int] = {(root, name if name in self._names(root) else _ALL): 0} if root else {}
        done, modules = 0, dict[str, bool]()
        while done < len(order) or not all(modules.values()):
            for module, name in list(order)[done:]:
                done += 1
                modules.setdefault(module, False)
                for part in self._parts(module, name):
                    yield self._filled(module, part, order)
            if done == len(order):
                for module in [module for module, followed in modules.items() if not followed]:
                    modules[module] = True
                    for part in self._effects(module):
                        yield self._filled(module, part, order)

    def _filled(self, module: str, part: Part, order: dict[Target, int]) -> str:
        """The text of a part; what it names gets a number when it is met first."""
        pieces = part.text.split(_HOLE)
        told = [pieces[0]]
        for chain, after in zip(part.chains, pieces[1:], strict=True):
            for found, rest in self._resolved(module, chain):
                known = found if isinstance(found, str) else str(order.setdefault(found, len(order)))
                told.append(".".join([known, *rest]))
            told.append(after)
        return " ".join(told)

    def _resolved(self, module: str, chain: Chain) -> Iterator[tuple[str | Target, Chain]]:
        """What a chain of a module names, a target or words of another library, and the attributes that are left."""
        file = self._file(module)
        if not chain[0]:
            started = self._started(chain[1])
            yield ((started, _ALL), ()) if started else (repr(chain[1]), ())
        elif file and chain[0] in file.names:
            yield (module, chain[0]), chain[1:]
        elif file and chain[0] in file.imports:
            for home, name in file.imports[chain[0]]:
                yield from self._within(home, ((name,) if name else ()) + chain[1:])
        else:
            yield chain[0], chain[1:]

    def _within(self, home: str, chain: Chain) -> Iterator[tuple[str | Target, Chain]]:
        """What attributes of a module name."""
        file = self._file(home)
        while chain and not (file and (chain[0] in file.names or chain[0] in file.imports)):
            below = f"{home}.{chain[0]}"
            if self._file(below) is None:
                break
            home, file, chain = below, self._file(below), chain[1:]
        if file is None:
            yield home, chain
        elif chain:
            yield from self._resolved(home, chain)
        else:
            yield (home, _ALL), ()

    def _started(self, module: str) -> str:
        """The module whose code `python -m` runs for a name, or nothing."""
        return next((each for each in (f"{module}.{_START}", module) if self._file(each)), "")

    def _parts(self, module: str, name: str) -> list[Part]:
        if module in HEADS:
            return []
        names = self._names(module)
        if name:
            return names.get(name, [])
        started = module.endswith(_START)
        return [each for key, parts in names.items() if started or key != _START for each in parts]

    def _effects(self, module: str) -> list[Part]:
        file = self._file(module)
        return file.effects if file and module not in HEADS else []

    def _names(self, module: str) -> dict[str, list[Part]]:
        file = self._file(module)
        return file.names if file else {}

    def _file(self, module: str) -> File | None:
        """Of a module; a package is its `__init__`, with the stub beside it if it has one."""
        if module not in self._files:
            self._files[module] = self._parsed(module) if _MODULE.fullmatch(module) else None
        return self._files[module]

    def _parsed(self, module: str) -> File | None:
        base = module.replace(".", "/")
        texts = [self._read(f"{base}{end}") for end in (".py", "/__init__.py", "/__init__.pyi")]
        files = [parse(text) for text in texts if text is not None]
        if not files:
            return None
        imports = {name: each for file in reversed(files) for name, each in file.imports.items()}
        return files[0]._replace(imports=imports)


@functools.cache
def parse(text: str) -> File:
    """What a file defines."""
    tree = ast.parse(text)
    imports: dict[str, list[Target]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                imports.setdefault(each.asname or each.name.partition(".")[0], []).append(
                    (each.name if each.asname else each.name.partition(".")[0], _ALL)
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                imports.setdefault(each.asname or each.name, []).append((node.module, each.name))
    defined = {id(statement): _defined(statement) for statement in tree.body}
    tops = frozenset(imports) | {name for names in defined.values() for name in names}
    file = File({}, {name: list(dict.fromkeys(found)) for name, found in imports.items()}, [])
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom) or _is_text(statement):
            continue
        part = _Writer(tops).part(statement)
        for name in defined[id(statement)]:
            file.names.setdefault(name, []).append(part)
        if not defined[id(statement)]:
            file.effects.append(part)
    return file


def _defined(statement: ast.stmt) -> list[str]:
    """Names that a statement at the top of a file defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test):
        return [_START]
    return list(dict.fromkeys(_stored(statement)))


def _stored(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is nothing but a string: a docstring, of whatever it follows."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class _Writer:
    """Writes trees down, with holes for names of the top of the file."""

    def __init__(self, tops: frozenset[str]) -> None:
        self._tops = tops
        self._chains: list[Chain] = []
        self._locals: dict[str, str] = {}
        self._quiet = False

    def part(self, statement: ast.stmt) -> Part:
        return Part(self._text(statement, top=True), tuple(self._chains))

    def _text(self, node: object, *, top: bool = False) -> str:
        if isinstance(node, list):
            shown = [each for each in node if not (_is_text(each) or isinstance(each, ast.Import | ast.ImportFrom))]
            return f"[{','.join(self._text(each) for each in shown)}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        chain = _chain(node)
        if chain and chain[0] in self._tops and chain[0] not in self._locals:
            return self._hole(chain)
        if isinstance(node, ast.Name):
            return self._locals.get(node.id, node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and self._quiet:
            return "words"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            return self._hole(("", node.value))
        before, name, quiet = self._locals, "", self._quiet
        self._quiet = quiet or isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg == _DESCRIBED)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not before:
            self._locals = _variables(node)
        if top and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = self._hole((node.name,))
        fields = (
            f"{field}={self._text(value)}"
            for field, value in ast.iter_fields(node)
            if value is not None
            and value != []
            and field not in ("ctx", "type_comment")
            and not (name and field == "name")
        )
        told = f"{type(node).__name__}({name}{','.join(fields)})"
        self._locals, self._quiet = before, quiet
        return told

    def _hole(self, chain: Chain) -> str:
        self._chains.append(chain)
        return _HOLE


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    """Numbers for variables of a function that nobody can name from outside: not for its parameters."""
    named = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    for each in ast.walk(function):
        if isinstance(each, ast.Global | ast.Nonlocal):
            named |= set(each.names)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            named.add(each.name)
    own = [name for name in dict.fromkeys(_stored(function)) if name not in named]
    return {name: f"#{index}" for index, name in enumerate(own)}


def _chain(node: ast.AST) -> Chain:
    """A name and the attributes after it, or nothing."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else ()
