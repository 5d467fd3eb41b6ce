"""The state between two rounds as arrays, to the last bit, so that a run can resume in another process.

The bytes of all arrays are concatenated. A JSON tree has the offset of each, and the types that they are part of.
Nothing has to be unpickled: the reader of a tree knows which types may be in it. Sections of the job's settings are
not stored. They are taken from the resumed job, where they must be equal.
"""

import dataclasses
import enum
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from dapple_dp.schemas.settings import json_text
from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.transforms.rounds.bound_broadcast import state_digest

_TREE, _DIGEST, _BYTES = "tree", "digest", "bytes"


def state_to_arrays(state: Any) -> dict[str, NDArray[Any]]:
    """Encodes the state of a protocol that runs in rounds, with all of its content.

    Args:
      state: as in `bound_broadcast.state_digest`.

    Returns:
      Arrays by name, without objects; equal for states of equal bits.

    Raises:
      TypeError: if it holds something that can't be stored bit by bit.
    """
    raw = bytearray()
    tree = json.dumps(_node(state, raw), sort_keys=True).encode()
    parts = {_TREE: tree, _DIGEST: state_digest(state), _BYTES: bytes(raw)}
    return {name: np.frombuffer(part, dtype=np.uint8) for name, part in parts.items()}


def state_from_arrays(arrays: Mapping[str, NDArray[Any]], known: Any, type_of: Callable[[str], type]) -> Any:
    """Inverse of `state_to_arrays`.

    Args:
      arrays: from `state_to_arrays`.
      known: settings and first state of the same job: they have its sections of settings.
      type_of: "module:Name" -> an audited type; raises MalformedError for any other.

    Raises:
      MalformedError: if the arrays aren't a state, or are one of other settings.
    """
    sections: dict[str, pydantic.BaseModel] = {}
    _collect(known, sections)
    try:
        tree = json_text.parse(np.asarray(arrays[_TREE], dtype=np.uint8).tobytes())
        raw = np.asarray(arrays[_BYTES], dtype=np.uint8).tobytes()
        state = _value(tree, raw, sections, type_of)
        same = state_digest(state) == np.asarray(arrays[_DIGEST], dtype=np.uint8).tobytes()
    except MalformedError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedError("no state between two rounds") from error
    if not same:
        raise MalformedError("a state of other bits")
    return state


def type_name(kind: type) -> str:
    """Returns the name of a type in a tree."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _node(value: Any, raw: bytearray) -> Any:
    """Returns the tree's node for a value; appends the bytes of arrays to `raw`."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return {"is": value}
    if kind is float:
        return {"float": value.hex()}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("a state must hold arrays of numbers, got one of objects.")
        order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        place = {"array": array.dtype.str, "shape": array.shape, "order": order, "at": len(raw)}
        raw += array.tobytes(order)
        return place | {"scalar": not isinstance(value, np.ndarray)}
    if isinstance(value, enum.Enum):
        return {"type": type_name(kind), "member": value.name}
    if dataclasses.is_dataclass(value):
        fields = {field.name: _node(getattr(value, field.name), raw) for field in dataclasses.fields(value)}
        return {"type": type_name(kind), "fields": fields}
    if isinstance(value, tuple | list):
        return {"type": type_name(kind), "items": [_node(each, raw) for each in value]}
    if isinstance(value, pydantic.BaseModel):
        return {"section": _section_name(value)}
    raise TypeError(f"a state must hold arrays, numbers, strings and such, got {kind.__name__}.")


def _value(
    node: Any,
    raw: bytes,
    sections: Mapping[str, pydantic.BaseModel],
    type_of: Callable[[str], type],
) -> Any:
    """Returns the value of a tree's node."""
    if "is" in node:
        return node["is"]
    if "float" in node:
        return float.fromhex(node["float"])
    if "array" in node:
        kept, size = np.dtype(node["array"]), math.prod(node["shape"])
        array = np.frombuffer(raw, kept, size, node["at"]).reshape(node["shape"], order=node["order"]).copy("K")
        return array[()] if node["scalar"] else array
    if "section" in node:
        if node["section"] not in sections:
            raise MalformedError("a state of other settings")
        return sections[node["section"]]
    if node["type"] in _PLAIN:
        return _PLAIN[node["type"]](_value(each, raw, sections, type_of) for each in node["items"])
    kind: Any = type_of(node["type"])
    if "member" in node:
        return kind[node["member"]]
    if "items" in node:
        return kind(*(_value(each, raw, sections, type_of) for each in node["items"]))
    return kind(**{name: _value(each, raw, sections, type_of) for name, each in node["fields"].items()})


_PLAIN = {type_name(kind): kind for kind in (tuple, list)}


def _section_name(section: pydantic.BaseModel) -> str:
    """Names a section by its type and content."""
    return f"{type_name(type(section))} {section.model_dump_json()}"


def _collect(value: Any, sections: dict[str, pydantic.BaseModel]) -> None:
    """Collects all sections of settings in a value, including itself."""
    inside: Iterable[Any] = ()
    if isinstance(value, pydantic.BaseModel):
        sections[_section_name(value)] = value
        inside = (each for _, each in value)
    elif dataclasses.is_dataclass(value):
        inside = (getattr(value, field.name) for field in dataclasses.fields(value))
    elif isinstance(value, tuple | list):
        inside = value
    for each in inside:
        _collect(each, sections)
