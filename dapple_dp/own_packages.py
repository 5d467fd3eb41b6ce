"""Dapple's code is in packages whose names others use as well: here `import` is shown where it finds Dapple's own.

Nothing of those packages can be imported before, so this module stands on Python's own library alone.
"""

import contextlib
import importlib.machinery
import importlib.metadata
import logging
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_SAID = "apitools not found"
"""How the line begins by which Beam says that a client of BigQuery is missing, for which Dapple has no use."""
ROOT = pathlib.Path(__file__).resolve().parents[1]
"""The folder of all of Dapple's packages: that of this repository, or of what is installed."""
DISTRIBUTION = "dapple-dp"
BEGINNINGS = {
    "schemas": '"""What crosses a boundary: configs, contracts, records and errors. Imports nothing of the house."""',
    "transforms": '"""Beam transforms: thin adapters around `transforms.numerics`."""',
    "pipelines": '"""Jobs: each turns options into a config, builds a pipeline and runs it."""',
}
"""The packages, by how the file of each begins; what another distribution has written over it begins otherwise."""


class ForeignPackageError(ImportError):
    """A package of Dapple is not Dapple's; the message is one sentence with the remedy."""


class OwnPackages(MetaPathFinder):
    """Finds Dapple's packages in Dapple's own folder, whatever comes before it on the path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a package of Dapple; None of everything else, which is left to others."""
        return _own_spec(fullname) if fullname in BEGINNINGS else None


def claim() -> None:
    """Has `import` take Dapple's packages from Dapple's own folder.

    Raises:
      ForeignPackageError: if one of them is another's, or another's of that name has been imported before.
    """
    for name in BEGINNINGS:
        _check_whole(name)
        _check_imported(name)
    if not any(isinstance(each, OwnPackages) for each in sys.meta_path):
        sys.meta_path.insert(0, OwnPackages())


def lend_to_children() -> None:
    """Has Python processes that this one starts find the same packages, where their path holds others of the names."""
    os.environ["PYTHONSAFEPATH"] = "1"
    given = os.environ.get("PYTHONPATH", "")
    if any(_holds_foreign(folder) for folder in given.split(os.pathsep)):
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), given])


def _own_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """What Dapple's own folder holds under a name."""
    return importlib.machinery.PathFinder.find_spec(name, [str(ROOT)])


def _check_whole(name: str) -> None:
    """Refuses a package of Dapple's own folder that another distribution has written over, or has taken along."""
    spec = _own_spec(name)
    if spec is None or not _begins_as_ours(name, spec):
        raise ForeignPackageError(_refusal(name, str(ROOT / name)))


def _begins_as_ours(name: str, spec: importlib.machinery.ModuleSpec) -> bool:
    """Whether the file of a package is Dapple's."""
    if spec.origin is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        return False
    return spec.loader.get_data(spec.origin).decode(errors="replace").startswith(BEGINNINGS[name])


def _check_imported(name: str) -> None:
    """Refuses a package of that name which this process has from elsewhere."""
    module = sys.modules.get(name)
    if module is None:
        return
    places = [str(pathlib.Path(place).resolve()) for place in getattr(module, "__path__", ())]
    if places != [str(ROOT / name)]:
        found = [*places, getattr(module, "__file__", None) or "an unknown place"]
        raise ForeignPackageError(_refusal(name, found[0]))


def _holds_foreign(folder: str) -> bool:
    """Whether `import` would find a package in a folder that has a name of Dapple's and is not Dapple's."""
    place = os.path.realpath(folder or ".")
    if place == str(ROOT):
        return False
    return any(importlib.machinery.PathFinder.find_spec(name, [place]) is not None for name in BEGINNINGS)


def _refusal(name: str, place: str) -> str:
    """The sentence; it names what else has installed the package, where that can be found."""
    others = ", ".join(sorted(_owners(name)))
    return (
        f"the package {name} must be Dapple's own, got another one or none in {place}"
        f"{f' (of {others})' if others else ''}; install {DISTRIBUTION} again, in an environment of its own."
    )


def _owners(name: str) -> Iterator[str]:
    """Other distributions in Dapple's folder with a package of that name."""
    for each in importlib.metadata.distributions(path=[str(ROOT)]):
        title = str(each.metadata["Name"])
        if title != DISTRIBUTION and any(file.parts[0] == name for file in each.files or ()):
            yield title


@contextlib.contextmanager
def without_gaps() -> Iterator[None]:
    """Leaves that line of Beam out, and the handler that came with it; whatever else is said is said."""
    root = logging.getLogger()
    had_handlers = bool(root.handlers)

    def is_other(record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_SAID):
            return True
        if not had_handlers:
            root.handlers.clear()
        return False

    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
