"""Dapple from Python: differentially private federated clustering on Apache Beam.

`from dapple_dp import DPKMeans` is the estimator; `fit`, `assign`, `evaluate`, `profile` and `decode` run the jobs of
the command, with the classes and functions that validate their settings. Everything is imported on first use. The file
`__init__.pyi` lists the public names and their modules, for type checkers and for this module.
"""

import ast
import importlib
import importlib.metadata
import importlib.util
import pathlib
from typing import Any

_FOLDER = pathlib.Path(__file__).resolve().parent
if not (_FOLDER / "schemas").is_dir() or (_FOLDER / "schemas").is_symlink():
    # In a checkout, the packages are beside this one; the links to them are for type checkers and editors.
    __path__.insert(0, str(_FOLDER.parent))

_STUB = ast.parse(_FOLDER.joinpath("__init__.pyi").read_text(encoding="utf-8"))
_HOME_OF = {alias.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}
__all__ = sorted(_HOME_OF)
_WITHOUT_BEAM = ("dapple_dp.estimator.", "dapple_dp.pipelines.", "dapple_dp.schemas.")


def __getattr__(name: str) -> Any:
    """Imports an attribute on first use."""
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME_OF:
        from dapple_dp.schemas.quiet_imports import uncollected, without_gaps

        try:
            with without_gaps(), uncollected():
                value = getattr(importlib.import_module(str(_HOME_OF[name])), name)
        except ModuleNotFoundError as error:
            from dapple_dp.schemas.errors import not_installed

            sentence = not_installed(error)
            if sentence is None:
                raise
            raise ModuleNotFoundError(sentence, name=error.name) from error
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    try:
        return importlib.metadata.version("dapple-dp")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def __dir__() -> list[str]:
    """Public names, but those that need Beam where it isn't installed: `help` imports each."""
    has_beam = importlib.util.find_spec("apache_beam") is not None
    return sorted(["__version__", *(name for name in __all__ if has_beam or _HOME_OF[name].startswith(_WITHOUT_BEAM))])
