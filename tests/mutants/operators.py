"""Mutants of a file: each is one small change of its syntax tree.

Comparisons and their bounds, arithmetic, numbers, `and` and `or`, least and largest, negated conditions, statements and
returned values that are dropped, arguments that change places, and calls of one value that are left out, such as clips
and checks. Messages of errors, logs, hints, decorators and texts stay as they are.
"""

import ast
import dataclasses
from collections.abc import Iterator

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_PAIRS = (("min", "max"), ("minimum", "maximum"), ("floor", "ceil"), ("any", "all"))
_EXCHANGED = dict(_PAIRS) | {after: before for before, after in _PAIRS}
_ONE_VALUE = ("clip", "trunc", "floor", "ceil", "rint", "round", "abs", "minimum", "maximum", "min", "max", "sqrt")
_ONE_VALUE += ("isqrt", "check", "bound", "fsum", "sorted", "frozenset", "square")
_TOLD = ("_LOGGER", "logging", "warnings")
_WORDS = ("description", "title", "examples")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change.

    Attributes:
      path: of the file.
      scope: class and function in which it stands; empty for the module.
      number: of the change among all of the file.
      change: the text before and after.
      lines: first and last line of the statement.
      function: the outermost function in whose body it stands; None if there is none.
    """

    path: str
    scope: str
    number: int
    change: str
    lines: tuple[int, int]
    function: str | None

    @property
    def name(self) -> str:
        """Returns what it is called in reports and tables; the same if lines move."""
        return f"{self.path}:{self.scope}: {self.change}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Edit:
    owner: ast.AST
    field: str
    place: int | None
    after: ast.AST
    shown: ast.AST

    def set(self, node: ast.AST) -> None:
        if self.place is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.place] = node

    @property
    def before(self) -> ast.AST:
        found = getattr(self.owner, self.field)
        return found if self.place is None else found[self.place]


def mutants_of(path: str, text: str, lines: set[int] | None = None) -> list[Mutant]:
    """All mutants of a file.

    Args:
      path: of the file, for names.
      text: its content.
      lines: where changes count; everywhere if None.
    """
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for number, (edit, where) in enumerate(_edits(ast.parse(text))):
        if lines is not None and edit.before.lineno not in lines:
            continue
        before = _shown(edit.shown)
        whole, old = edit.shown is edit.before, edit.before
        edit.set(edit.after)
        after = _shown(edit.after if whole else edit.shown)
        edit.set(old)
        change = f"{before} => {after}"
        seen[where.scope + change] = seen.get(where.scope + change, 0) + 1
        if (again := seen[where.scope + change]) > 1:
            change += f" (place {again})"
        found.append(
            Mutant(
                path=path,
                scope=where.scope,
                number=number,
                change=change,
                lines=where.lines,
                function=where.function,
            )
        )
    return found


def mutated(text: str, number: int) -> ast.Module:
    """The tree of a file with one of its changes."""
    tree = ast.parse(text)
    edit = next(edit for place, (edit, _) in enumerate(_edits(tree)) if place == number)
    edit.set(ast.copy_location(edit.after, edit.before))
    return ast.fix_missing_locations(tree)


def _shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


@dataclasses.dataclass(frozen=True, slots=True)
class _Where:
    scope: str = ""
    lines: tuple[int, int] = (0, 0)
    function: str | None = None


def _edits(tree: ast.Module) -> Iterator[tuple[_Edit, _Where]]:
    yield from _inside(tree, tree, _Where())


def _inside(node: ast.AST, shown: ast.AST, where: _Where) -> Iterator[tuple[_Edit, _Where]]:
    """Changes of what stands in a node; `shown` is the innermost expression that shows what is changed."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "ctx", "ops", "op"):
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _is_message(child):
                yield from _child(node, field, place, child, shown, where)


def _child(
    owner: ast.AST, field: str, place: int | None, child: ast.AST, shown: ast.AST, where: _Where
) -> Iterator[tuple[_Edit, _Where]]:
    if isinstance(child, ast.stmt):
        where = _within(owner, field, child, where)
    if not isinstance(child, (ast.Constant, ast.Name)):
        shown = child
    for after in _changes(owner, field, child):
        whole = isinstance(child, ast.expr) and shown is not child
        yield _Edit(owner, field, place, after, shown if whole else child), where
    if not isinstance(child, ast.Raise):
        yield from _inside(child, shown, where)


def _within(owner: ast.AST, field: str, child: ast.stmt, where: _Where) -> _Where:
    """Returns where a statement stands: its own lines, or those of its head."""
    scope, function = where.scope, where.function
    if isinstance(owner, (ast.FunctionDef, ast.ClassDef)):
        scope = f"{scope}.{owner.name}".lstrip(".")
        if isinstance(owner, ast.FunctionDef) and function is None and field == "body":
            function = scope
    body = getattr(child, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else child.end_lineno or child.lineno
    return _Where(scope, (child.lineno, max(last, child.lineno)), function)


def _is_message(node: ast.AST) -> bool:
    """Returns whether a node only informs people, or is a hint."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in _WORDS
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return True
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True
        return isinstance(node.value, ast.Call) and ast.unparse(node.value.func).split(".")[0] in _TOLD
    return False


def _changes(owner: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    elif isinstance(node, ast.expr):
        yield from _expressions(node)
        if field in ("test", "ifs") and not isinstance(node, ast.Compare) and not _is_not(node):
            yield ast.UnaryOp(ast.Not(), node)


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """Statements that are dropped; a first assignment is not, since a name that is missing is always noticed."""
    dropped = isinstance(node, (ast.Raise, ast.AugAssign, ast.Continue, ast.Break, ast.Delete))
    dropped = dropped or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    if isinstance(node, ast.Assign):
        dropped = not isinstance(node.targets[0], (ast.Name, ast.Tuple))
    if dropped:
        yield ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _COMPUTED:
        yield ast.AugAssign(node.target, _COMPUTED[type(node.op)](), node.value)
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield ast.Return(ast.Constant(None))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARED[type(operator)]:
                yield ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not _is_hint(node):
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _numbers(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _is_hint(node: ast.BinOp) -> bool:
    """Returns whether it is a choice of types, or puts steps of a graph together."""
    if isinstance(node.op, ast.BitOr):
        return _is_none(node.right) or _is_none(node.left) or "' >> " in ast.unparse(node)
    return isinstance(node.op, ast.RShift) and isinstance(node.left, (ast.Constant, ast.JoinedStr))


def _numbers(node: ast.Constant) -> Iterator[ast.Constant]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, (int, float)):
        for after in dict.fromkeys((node.value + 1, node.value - 1, 2 * node.value)):
            if after != node.value:
                yield ast.Constant(after)


def _calls(node: ast.Call) -> Iterator[ast.Call | ast.expr]:
    name = ast.unparse(node.func).split(".")[-1]
    if name in _EXCHANGED and isinstance(node.func, ast.Name):
        yield ast.Call(ast.Name(_EXCHANGED[name], ast.Load()), node.args, node.keywords)
    elif name in _EXCHANGED and isinstance(node.func, ast.Attribute):
        yield ast.Call(ast.Attribute(node.func.value, _EXCHANGED[name], ast.Load()), node.args, node.keywords)
    plain = [each for each in node.args if not isinstance(each, ast.Starred)]
    ordered = len(plain) == len(node.args) >= 2 and name not in (*_EXCHANGED, "isinstance")
    if ordered and ast.dump(plain[0]) != ast.dump(plain[1]):
        yield ast.Call(node.func, [plain[1], plain[0], *plain[2:]], node.keywords)
    first = node.args[0] if node.args else None
    left_out = first is not None and name.lstrip("_").startswith(_ONE_VALUE)
    # A set that is written out and not frozen has the same elements.
    if left_out and not isinstance(first, (ast.Starred, ast.GeneratorExp, ast.Constant, ast.Set)):
        yield first
