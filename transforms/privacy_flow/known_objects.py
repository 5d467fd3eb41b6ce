"""Whether objects that a step is handed are what they look like: of audited types, all the way down.

Values of Python and NumPy that carry no code are known. Containers, partial applications and objects of audited types
are looked into. Everything else is a stranger: its methods would run on private rows, or would decide how these are
bounded and noised.
"""

import enum
import functools
import types
from collections.abc import Iterable
from typing import Any

import numpy as np
from apache_beam.pvalue import AsSingleton

from transforms.privacy_flow import extensions
from transforms.privacy_flow.allow_list import AUDITED
from transforms.privacy_flow.audited_code import name_of
from transforms.privacy_flow.audited_types import ATTRIBUTES, AUDITED_TYPES, BEAM_FUNCTIONS, STATES, WHOLE
from transforms.privacy_flow.stated_sensitivity import STATED

_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis), np.bool_, np.str_, np.bytes_}
    | {np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64}
)
"""Types of values that carry no code and can be given no attributes."""
_SEQUENCES = frozenset({tuple, list, set, frozenset})
_NOTHING: frozenset[str] = frozenset()


class KnownObjects:
    """Looks into objects, each one once for the graph that is checked."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def stranger(self, values: Iterable[Any]) -> str | None:
        """The fault in the first object that is not known, in words; None if all are known."""
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
        """All that were looked into."""
        return list(self._known.values())


def is_state(value: Any) -> bool:
    """Whether an object is the state of a protocol that runs in rounds."""
    return type_name(type(value)) in STATES


def type_name(kind: type) -> str | None:
    """The name of an audited or registered type; None for any other."""
    name = name_of(kind)
    return name if name in AUDITED_TYPES or extensions.is_registered(kind) else None


def _inside(value: Any) -> list[Any] | str:
    """What an object holds; if it is not known, what is wrong with it."""
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
    if name is not None:
        return _inside_audited(value, name)
    return [] if value is AsSingleton._NO_DEFAULT else f"one of {_described(kind)}, which is no audited type"


def _described(kind: type) -> str:
    """What messages call a type that may call itself anything."""
    return f"{type.__getattribute__(kind, '__module__')}:{kind.__name__}"


def _inside_partial(value: Any) -> list[Any] | str:
    """Function and arguments of a partial application that has no attributes of its own."""
    if value.__dict__:
        return "a partial application with an attribute of its own"
    return [value.func, *value.args, value.keywords]


def _inside_function(value: types.FunctionType) -> list[Any] | str:
    """What an audited function carries: defaults, attributes and cells."""
    name = name_of(value) or ""
    if name in BEAM_FUNCTIONS:
        return []
    if name not in AUDITED and name not in STATED:
        return f"the function {value.__qualname__}, which is not audited"
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    return [value.__defaults__, value.__kwdefaults__, *cells, vars(value)]


def _inside_audited(value: Any, name: str) -> list[Any] | str:
    """The declared fields of an object of an audited type, if it has no others."""
    if isinstance(value, enum.Enum):
        return [] if _is_member(value) else f"one of {name} that is not a member"
    if name in WHOLE:
        return []
    kind: type = type(value)
    declared = _fields(kind) | ATTRIBUTES.get(name, _NOTHING)
    own = getattr(value, "__dict__", {})
    for each in own:
        if type(each) is not str or each not in declared:
            return f"one of {name} with an attribute that its type does not declare"
    items = list(value) if isinstance(value, tuple) else []
    return [*items, *_in_slots(value), *own.values()]


def _is_member(value: enum.Enum) -> bool:
    """Whether an object is the member that its enumeration lists under its name."""
    return type(value)._member_map_.get(vars(value).get("_name_", "")) is value


def _in_slots(value: Any) -> list[Any]:
    """Values of the slots that are filled."""
    kind: type = type(value)
    return [getattr(value, each) for each in _slots(kind) if hasattr(value, each)]


@functools.lru_cache(maxsize=512)
def _fields(kind: type) -> frozenset[str]:
    """Attributes that a dataclass or a model of pydantic declares."""
    return frozenset(getattr(kind, "__dataclass_fields__", ())) | frozenset(getattr(kind, "__pydantic_fields__", ()))


@functools.lru_cache(maxsize=512)
def _slots(kind: type) -> tuple[str, ...]:
    """Slots of a class and of those that it is derived from."""
    named = [vars(each).get("__slots__", ()) for each in kind.__mro__]
    found = [slot for each in named for slot in ((each,) if isinstance(each, str) else each)]
    return tuple(each for each in dict.fromkeys(found) if each not in ("__dict__", "__weakref__"))
