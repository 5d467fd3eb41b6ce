"""What a step of a graph runs: the class or function behind it, and what it was handed.

Code is known by identity: an object counts as the one named in the allow list if it is the very object that stands in
that module under that name. A class of the same name elsewhere is another one, and so is a subclass.
"""

import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.transforms import core

_WRAPPERS = tuple(
    code
    for maker in (beam.Map, beam.MapTuple, beam.FlatMapTuple)
    for code in maker.__code__.co_consts
    if isinstance(code, types.CodeType) and code.co_name == "<lambda>"
)
"""Code of the functions that Beam puts around those it is given."""
_CONVERTERS = ("input_batch_converter", "output_batch_converter")
COMBINES = (beam.CombineGlobally, beam.CombinePerKey)
_BEAMS_OWN = frozenset(vars(beam.PTransform())) | {"label", "_label", "side_inputs", "pipeline"}


def name_of(code: Any) -> str | None:
    """The name under which a class or function can be listed, "module:Qualified.name"; None if it stands nowhere."""
    module, path = getattr(code, "__module__", None), getattr(code, "__qualname__", None)
    # A subclass of str could look itself up under one name and be written as another.
    if type(module) is not str or type(path) is not str:
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{module}:{path}" if found is code else None


def innermost(function: Any) -> Any:
    """A function without arguments that were given to it before."""
    return innermost(function.func) if isinstance(function, functools.partial) else function


def code_of(transform: Any) -> Any:
    """What decides about a step: function or class of a DoFn or CombineFn, else the class of the transform."""
    if type(transform) is beam.ParDo:
        return _function(transform.fn) if type(transform.fn) is core.CallableWrapperDoFn else type(transform.fn)
    if type(transform) in COMBINES:
        return type(transform.fn) if isinstance(transform.fn, beam.CombineFn) else transform.fn
    return type(transform)


def _function(wrapper: core.CallableWrapperDoFn) -> Any:
    """The function given to Map, FlatMap or their like."""
    function = wrapper._fn
    if isinstance(function, types.FunctionType) and function.__code__ in _WRAPPERS:
        return inside if (inside := _enclosed(function)) is not None else function
    return function


def _enclosed(wrapper: types.FunctionType) -> Any:
    """The function around which Beam has put `wrapper`."""
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True))
    return cells["fn"].cell_contents if "fn" in cells else None


def is_altered(transform: Any) -> bool:
    """Whether an instance hides a part of its class, of the transform or of what it runs."""
    parts = [transform]
    if type(transform) in (beam.ParDo, *COMBINES):
        parts.append(transform.fn)
    if type(transform) is beam.ParDo and transform.dofn is not transform.fn:
        return True
    return any(_is_rewired(part) if type(part) is core.CallableWrapperDoFn else _hides(part) for part in parts)


def _is_rewired(wrapper: core.CallableWrapperDoFn) -> bool:
    """Whether Beam's wrapper of a function runs something else than the function by which it is known."""
    own = vars(wrapper)
    strange = set(own) - {"_fn", "process", "_fullargspec", "_type_hints", *_CONVERTERS}
    return bool(strange) or own["process"] is not own["_fn"] or any(own.get(each) is not None for each in _CONVERTERS)


def _hides(instance: Any) -> bool:
    """Whether an attribute of an instance stands before a method, a property or a hook of its class."""
    fields = getattr(type(instance), "__dataclass_fields__", {})
    own = [name for name in getattr(instance, "__dict__", {}) if name not in fields]
    return any(name.startswith("__") or hasattr(_of_class(instance, name), "__get__") for name in own)


def _of_class(instance: Any, name: str) -> Any:
    """What the class of an instance has under a name, as it stands there; None if it has nothing."""
    return next((vars(each)[name] for each in type(instance).__mro__ if name in vars(each)), None)


def runs_as_itself(transform: Any) -> bool:
    """Whether a composite is no more than its steps: no primitive for runners, and no function of its own."""
    overridden = type(transform).to_runner_api_parameter is not beam.PTransform.to_runner_api_parameter
    return type(transform) not in COMBINES and not overridden and "to_runner_api_parameter" not in vars(transform)


def handed(transform: Any) -> Iterator[Any]:
    """Everything a step was given, containers and partial functions taken apart."""
    for value in given(transform):
        yield from _parts(value)


def given(transform: Any) -> list[Any]:
    """What a step was given: attributes and arguments."""
    found = [value for name, value in vars(transform).items() if name not in _BEAMS_OWN]
    if type(transform) is beam.ParDo:
        function = transform.fn
        found = [] if type(function) is core.CallableWrapperDoFn else list(vars(function).values())
        found += [*transform.args, *transform.kwargs.values()]
    elif type(transform) in COMBINES:
        found = [*getattr(transform.fn, "__dict__", {}).values(), *transform.args, *transform.kwargs.values()]
    return found


def _parts(value: Any) -> Iterator[Any]:
    yield value
    inside: Any = ()
    if isinstance(value, functools.partial):
        inside = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Mapping):
        inside = (*value.keys(), *value.values())
    elif isinstance(value, (tuple, list, set, frozenset)):
        inside = value
    for each in inside:
        yield from _parts(each)


def functions(values: Iterator[Any]) -> Iterator[Callable[..., Any]]:
    """Those of the values that are functions; of a partial one, the function inside is among the values."""
    for value in values:
        if callable(value) and not isinstance(value, (functools.partial, beam.PTransform)):
            yield value
