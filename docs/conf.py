"""How the site is built: `./run_local.sh docs`. Warnings are errors, notebooks are executed, nothing is fetched."""

import os
import pathlib
import re
import sys

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
# Notebooks run in processes of their own, which find the packages and the examples by this.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["DAPPLE_ROOT"] = str(ROOT)

import generated  # noqa: E402 - it lies beside this file

import dapple_dp  # noqa: E402 - from the repository

project = "Dapple"
author = "The Dapple authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = "Dapple"
html_copy_source = False
html_show_sphinx = False

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
# As variables of a list their names would be read as links, and lose the underscore at their end.
napoleon_use_ivar = False
python_use_unqualified_type_names = True


_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")


def _show_paths_of_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Shows a link that leads out of the site as the path of its file; one to nowhere is left, and so a warning."""

    def shown(link: re.Match[str]) -> str:
        target = (HERE / page).parent.joinpath(link[2]).resolve()
        if target.is_relative_to(HERE) or not target.is_relative_to(ROOT) or not target.exists():
            return link[0]
        path = str(target.relative_to(ROOT))
        return f"`{path}`" if link[1] in path else f"{link[1]} (`{path}`)"

    source[0] = _LINK.sub(shown, source[0])


def _names_are_whole(app: Sphinx, error: Exception | None) -> None:
    """Stops the build if the page of the API shows an attribute by another name than its own."""
    shown = re.findall(r'id="dapple_dp\.(\w+\.\w+)"', (pathlib.Path(app.outdir) / "reference" / "api.html").read_text())
    kinds = (dapple_dp.DPKMeans, dapple_dp.PrivateScaler)
    missing = [f"{kind.__name__}.{name}" for kind in kinds for name in generated.attributes(kind)]
    missing = [name for name in missing if name not in shown]
    if missing and error is None:
        raise ExtensionError(f"reference/api.html must show the attributes by their names, got none of {missing}.")


def setup(app: Sphinx) -> None:
    """Writes the generated pages first, and follows links that lead out of the site."""
    app.connect("builder-inited", lambda _: generated.write(HERE / "reference"))
    app.connect("build-finished", _names_are_whole)
    app.connect("source-read", _show_paths_of_the_repository)
