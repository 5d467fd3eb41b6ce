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
napoleon_use_ivar = True
# Without it `labels_` is taken for a reference to `labels`, and loses what tells learned attributes.
strip_signature_backslash = True
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


def _check_names(app: Sphinx, failure: Exception | None) -> None:
    """Stops a build whose API page shows learned attributes under other names than the code has."""
    if failure is None and app.builder.name == "html":
        page = (pathlib.Path(app.outdir) / "reference" / "api.html").read_text()
        lost = generated.lost_names(page)
        if lost:
            raise ExtensionError(f"reference/api.html must show the attributes {', '.join(lost)}, and does not")


def setup(app: Sphinx) -> None:
    """Writes the generated pages first, follows links that lead out of the site, and checks names."""
    app.connect("build-finished", _check_names)
    app.connect("builder-inited", lambda _: generated.write(HERE / "reference"))
    app.connect("source-read", _show_paths_of_the_repository)
