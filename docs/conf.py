"""Settings of the site's build, `./run_local.sh docs`. Warnings are errors, notebooks run, nothing is fetched."""

import logging
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
# They have settings of their own, too: kernels talk to this process alone, and need not warn that others could listen.
PROFILE = ROOT / "out" / "docs" / "ipython" / "profile_default"
PROFILE.mkdir(parents=True, exist_ok=True)
(PROFILE / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 'ERROR'\n")
os.environ["IPYTHONDIR"] = str(PROFILE.parent)

# The colors of the theme give the root logger a handler that shows everything.
logging.getLogger("traitlets").setLevel(logging.WARNING)

import generated  # noqa: E402 - all are beside this file
import note  # noqa: E402
import picture  # noqa: E402
import searched  # noqa: E402

project = "Dapple"
author = "The Dapple authors"
extensions = ["myst_nb", "sphinx_copybutton", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "Dapple"
html_static_path = ["_static"]
html_css_files = ["front.css"]
html_copy_source = False
html_show_sphinx = False

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
copybutton_selector = ":not(.highlight-text, .output) > .highlight pre"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# Without it `labels_` is taken for a reference to `labels`, and loses the mark of learned attributes.
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


def _mark_words(app: Sphinx, page: str, source: list[str]) -> None:
    """Lets the search put a page first for the words that readers look for."""
    source[0] = searched.marked(page, source[0])


def _leave_out_decisions(app: Sphinx, page: str, source: list[str]) -> None:
    """Builds pages of decisions without a place in the sidebar: they are for contributors."""
    if page.startswith("decisions/"):
        source[0] = f"---\norphan: true\n---\n{source[0]}"


def _link_the_note(app: Sphinx, page: str, source: list[str]) -> None:
    """Says on the page of the guarantee that it is a PDF, too, which the repository does not have."""
    if page == "guarantee" and app.builder.name == "html":
        source[0] = source[0].replace("\n\n", '\n\n<a href="guarantee.pdf">This page as a PDF</a>\n\n', 1)


def _write_note(app: Sphinx, failure: Exception | None) -> None:
    """Writes the PDF, and stops a build whose note for referees has become too long."""
    if failure is None and app.builder.name == "html":
        note.write(pathlib.Path(app.outdir) / "guarantee.pdf")


def _check_site(app: Sphinx, failure: Exception | None) -> None:
    """Stops a build whose API page shows other names than the code has, or whose search does not know a word."""
    if failure is None and app.builder.name == "html":
        site = pathlib.Path(app.outdir)
        lost = generated.lost_names((site / "reference" / "api.html").read_text())
        if lost:
            raise ExtensionError(f"reference/api.html must show the attributes {', '.join(lost)}, and does not")
        if lost := searched.lost_words(site):
            raise ExtensionError(f"the search must put the pages of docs/searched.py first, not so {', '.join(lost)}")


def setup(app: Sphinx) -> None:
    """Writes the generated pages first, follows links that lead out of the site, and checks names."""
    app.connect("build-finished", _check_site)
    app.connect("build-finished", _write_note)
    app.connect("builder-inited", lambda _: generated.write(HERE / "reference"))
    app.connect("builder-inited", lambda _: picture.write())
    app.connect("source-read", _show_paths_of_the_repository)
    app.connect("source-read", _mark_words)
    app.connect("source-read", _link_the_note)
    app.connect("source-read", _leave_out_decisions)
