"""Libraries that others import and a job mostly never uses: in the command they wait until something is asked of them.

A late module stands in `sys.modules` like any other, with its spec, file and path; its body runs when it is asked for
what it does not have yet. Its submodules are imported without it. Where a package gathers names of its submodules, the
few that jobs need are taken from where they are, and any other name has the body run.

Bodies run under the locks of `import`: once, whichever threads ask, and the others wait. Python's own `LazyLoader`
shows them half a module before 3.11.8 and 3.12.2.
"""

import contextlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_UFUNCS = "scipy.special._ufuncs"
LATE: dict[str, dict[str, str]] = {
    "boto3": {},
    "httplib2": {},
    "numpy.f2py": {},
    "numpy.testing": {},
    "requests": {},
    "scipy.spatial.transform": {},
    "scipy.special": {"boxcox": _UFUNCS, "inv_boxcox": _UFUNCS, "rel_entr": _UFUNCS},
    "scipy.stats": {},
    "sklearn.callback": {"CallbackSupportMixin": "sklearn.callback._callback_support"},
    "sklearn.cluster": {"KMeans": "sklearn.cluster._kmeans", "kmeans_plusplus": "sklearn.cluster._kmeans"},
    "sklearn.metrics": {},
    "sklearn.preprocessing": {"normalize": "sklearn.preprocessing._data"},
}
"""Modules, each with names that can be had without its body: from which submodule, or as which."""
_BODY = "body of "
_ASKED: dict[str, "LateModule"] = {}
"""Modules that have been asked for their bodies, by the names under which these are imported."""


def begin() -> None:
    """Has this process import the modules of `LATE` late, those aside that are there already.

    For a process that is Dapple's own: a library has no business to change how others are imported.
    """
    if not any(isinstance(each, LateFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, LateFinder(LATE))


class LateModule(ModuleType):
    """A module whose body has not run."""

    def __getattr__(self, name: str) -> Any:
        """What the module does not have yet.

        Raises:
          AttributeError: if it does not have it with its body, either.
          Exception: what the body raised; it runs again when it is needed again.
        """
        spec: Any = self.__spec__
        place = spec.loader_state.get(name)
        if place is not None:
            with contextlib.suppress(ImportError, AttributeError):
                return _taken(place, self.__name__, name)
        alias = f"{_BODY}{self.__name__} {id(self)}".replace(".", "/")
        _ASKED[alias] = self
        __import__(alias)
        return ModuleType.__getattribute__(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """By its name, as pickles refer to modules."""
        return importlib.import_module, (self.__name__,)


def _taken(place: str, package: str, name: str) -> Any:
    """A name of a package that lies in a submodule, or is one."""
    module = importlib.import_module(place)
    return module if place == f"{package}.{name}" else getattr(module, name)


class LateFinder(MetaPathFinder):
    """Finds late modules where `import` finds them on its path, if they are Python files; leaves the rest to others.

    Args:
      late: as `LATE`.
    """

    def __init__(self, late: Mapping[str, Mapping[str, str]]) -> None:
        self._late = late

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a late module or of a body; None of everything else."""
        if fullname in _ASKED:
            return ModuleSpec(fullname, _BodyLoader())
        if fullname not in self._late:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader, spec.loader_state = _LateLoader(spec.loader), self._late[fullname]
        return spec


class _LateLoader(Loader):
    """Makes a module and leaves its body."""

    def __init__(self, loader: SourceFileLoader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """Has the module wait; its loader is from now on the one that runs its body."""
        spec: Any = module.__spec__
        spec.loader = module.__loader__ = self._loader
        module.__class__ = LateModule


class _BodyLoader(Loader):
    """Runs the body of a late module, as the import of a module of its own, whose locks hold."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs it, unless that has been done."""
        late: Any = _ASKED[module.__name__]
        waits = type(late) is LateModule
        if waits:
            late.__spec__.loader.exec_module(late)
            late.__class__ = ModuleType
