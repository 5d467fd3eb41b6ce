"""Checks that the objects passed to a step are of audited types, all the way down.

Values of Python and NumPy that carry no code are known. Containers, partial applications and objects of audited types
are searched. Anything else is refused: its methods would run on private rows, or would decide how rows are bounded and
noised.

Code is known by identity: an object counts as the listed one only if it is the very object that its module has under
that name. A class of the same name elsewhere is a different one, and so is a subclass.
"""

import enum
import functools
import sys
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from dapple_dp.transforms.core.allow_list import AUDITED
from dapple_dp.transforms.core.audited_types import ATTRIBUTES, AUDITED_TYPES, BEAM_FUNCTIONS, STATES, WHOLE
from dapple_dp.transforms.core.stated_sensitivity import STATED

_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis), np.bool_, np.str_, np.bytes_}
    | {np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64}
)
"""Types whose values carry no code and take no attributes."""
_SEQUENCES = frozenset({tuple, list, set, frozenset})

REGISTERED: dict[type, dict[str, object]] = {}
"""Types that third parties vouch for, with their entries in `privacy.json`; see `transforms/privacy/extensions.py`."""


def name_of(code: Any) -> str | None:
    """Returns the "module:Qualified.name" at which code can be found; None if it isn't there."""
    module, path = getattr(code, "__module__", None), getattr(code, "__qualname__", None)
    # A subclass of str could be looked up under one name and compare equal to another.
    if type(module) is not str or type(path) is not str:
        return None
    listed: Any = sys.modules.get(module)
    for part in path.split("."):
        listed = getattr(listed, part, None)
    return f"{module}:{path}" if listed is code else None


def innermost(function: Any) -> Any:
    """Returns a function without the partial applications around it."""
    return innermost(function.func) if isinstance(function, functools.partial) else function


class KnownObjects:
    """Searches objects, each one once per checked run.

    Args:
      also: objects of an engine that are known by identity.
    """

    def __init__(self, also: Iterable[Any] = ()) -> None:
        self._known: dict[int, Any] = {id(value): value for value in also}

    def stranger(self, values: Iterable[Any]) -> str | None:
        """Describes the first object that is not known; None if all are known."""
        pending = list(values)
        while pending:
            value = pending.pop()
            if type(value) in _PLAIN or id(value) in self._known:
                continue
            inside = _inside(value)
            if isinstance(inside, str):
                return inside
            self._known[id(value)] = value
            pending += inside
        return None

    def objects(self) -> list[Any]:
        """Returns all objects that were searched."""
        return list(self._known.values())


def is_state(value: Any) -> bool:
    """Returns whether an object is a protocol's state."""
    return type_name(type(value)) in STATES


def is_a(value: Any, listed: frozenset[str]) -> bool:
    """Returns whether the type of an object, or a base of it (for registered types), is listed."""
    kind = type(value)
    return kind not in _PLAIN and any(name_of(base) in listed for base in kind.__mro__)


def type_name(kind: type) -> str | None:
    """Returns the name of an audited or registered type; None for any other."""
    name = name_of(kind)
    return name if name in AUDITED_TYPES or kind in REGISTERED else None


def _inside(value: Any) -> list[Any] | str:
    """Returns the contents of an object or, if it is not known, what is wrong with it."""
    kind = type(value)
    if kind in _SEQUENCES:
        return list(value)
    if kind is dict:
        return [*value.keys(), *value.values()]
    if kind is np.ndarray:
        return list(value.flat) if value.dtype.hasobject else []
    if kind is functools.partial:
        return _inside_partial(value)
    if kind is types.FunctionType:
        return _inside_function(value)
    name = type_name(kind)
    if name is None:
        # `kind.__module__` could be a property of a hostile metaclass.
        return f"one of {type.__getattribute__(kind, '__module__')}:{kind.__name__}, which is no audited type"
    return _inside_audited(value, name)


def _inside_partial(value: Any) -> list[Any] | str:
    if value.__dict__:
        return "a partial application with an attribute of its own"
    return [value.func, *value.args, value.keywords]


def _inside_function(value: types.FunctionType) -> list[Any] | str:
    """Returns the defaults, attributes and cells of an audited function."""
    name = name_of(value) or ""
    if name in BEAM_FUNCTIONS:
        return []
    if name not in AUDITED and name not in STATED and not _maps_windows(value):
        return f"the function {value.__qualname__}, which is not audited"
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    return [value.__defaults__, value.__kwdefaults__, *cells, vars(value)]


def _maps_windows(function: types.FunctionType) -> bool:
    """Returns whether Beam made a function to find the window of a side input; the windows in its cell are searched."""
    maker: Any = getattr(sys.modules.get("apache_beam.transforms.sideinputs"), "default_window_mapping_fn", None)
    if type(maker) is not types.FunctionType or function.__globals__ is not maker.__globals__:
        return False
    return any(part is function.__code__ for part in maker.__code__.co_consts)


def _inside_audited(value: Any, name: str) -> list[Any] | str:
    if isinstance(value, enum.Enum):
        member = type(value)._member_map_.get(vars(value).get("_name_", ""))
        return [] if member is value else f"one of {name} that is not a member"
    if name in WHOLE:
        return []
    kind: type = type(value)
    declared = _fields(kind) | ATTRIBUTES.get(name, frozenset())
    own = getattr(value, "__dict__", {})
    for attribute in own:
        if type(attribute) is not str or attribute not in declared:
            return f"one of {name} with an attribute that its type does not declare"
    items = list(value) if isinstance(value, tuple) else []
    filled = (getattr(value, slot) for slot in _slots(kind) if hasattr(value, slot))
    return [*items, *filled, *own.values()]


@functools.lru_cache(maxsize=512)
def _fields(kind: type) -> frozenset[str]:
    """Returns the fields of a dataclass or pydantic model."""
    return frozenset(getattr(kind, "__dataclass_fields__", ())) | frozenset(getattr(kind, "__pydantic_fields__", ()))


@functools.lru_cache(maxsize=512)
def _slots(kind: type) -> tuple[str, ...]:
    """Returns the slots of a class and its bases."""
    named = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    slots = [slot for names in named for slot in ((names,) if isinstance(names, str) else names)]
    return tuple(slot for slot in dict.fromkeys(slots) if slot not in ("__dict__", "__weakref__"))


def marks() -> list[dict[str, object]]:
    """Returns the entries of all registered types in `privacy.json`, by name."""
    return sorted(REGISTERED.values(), key=lambda entry: str(entry["type"]))
