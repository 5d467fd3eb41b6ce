"""Pictures of a report for the README and the front page of the site, in light and in dark.

    ./run_local.sh                                                  # makes the report
    python -m tests.report_pictures out/census/fit/report.html      # writes docs/images/report-*.png

A picture is the head of the page with the privacy label, and two plots of its clusters. Sections between them, the
stamp of the run and the captions are left out, and the plots have one height. Nothing else is changed. It needs
Chromium, as the tests of pages do.
"""

import argparse
import pathlib
import sys

from PIL import Image

from tests.scenes import browser

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "images"
SCHEMES = ("light", "dark")
PLOTS = ("Noisy sizes", "Map of the centers")
PAGE_WIDTH, WIDTH = 1120, 1600
"""Pixels of the page as it is laid out, and of the picture."""
MARGIN = 20
COLORS = 64
MOST_BYTES = 150_000

_LEAVE_OUT = """
(titles => {
  for (const each of document.querySelectorAll("nav, .stamp, figcaption, section .lead")) each.remove();
  for (const each of document.querySelectorAll("main > section")) if (each.id !== "clusters") each.remove();
  const plots = [...document.querySelectorAll("#clusters figure")];
  const kept = plots.filter(each => titles.some(title => each.querySelector("h3").textContent.includes(title)));
  for (const each of plots) if (!kept.includes(each)) each.remove();
  document.querySelector("header .inner").style.paddingBottom = "2rem";
  document.querySelector("#clusters h2").style.marginBottom = "1rem";
  const drawn = kept.map(each => each.querySelector("svg"));
  const height = Math.min(...drawn.map(each => each.getBoundingClientRect().height));
  for (const each of drawn) each.style.height = `${height}px`;
  return [kept.length, Math.max(...kept.map(each => each.getBoundingClientRect().bottom))];
})
"""


def take(page: browser.Browser, report: pathlib.Path, picture: pathlib.Path, *, dark: bool) -> None:
    """Writes the picture of a report in one scheme.

    Args:
      page: of a browser.
      report: a page that `fit` wrote.
      picture: the PNG file to write.
      dark: whether the reader prefers dark pages.

    Raises:
      ValueError: if the report lacks one of `PLOTS`, or the picture has more than `MOST_BYTES`.
    """
    page.emulate(PAGE_WIDTH, dark=dark, scale=WIDTH / PAGE_WIDTH)
    page.open(report)
    found, bottom = page.evaluate(f"{_LEAVE_OUT}({list(PLOTS)})")
    if found != len(PLOTS):
        raise ValueError(f"the report must have the plots {', '.join(PLOTS)}, and has {found} of them.")
    page.screenshot(picture, clip=(PAGE_WIDTH, bottom + MARGIN))
    with Image.open(picture) as whole:
        few = whole.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)
    if picture.stat().st_size > MOST_BYTES:
        raise ValueError(f"a picture must have at most {MOST_BYTES} bytes, got {picture.stat().st_size}.")


def main() -> int:
    """Takes both pictures; 0, or 2 without a browser."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=pathlib.Path, help="report.html of a fit")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER, help="where the pictures go")
    options = parser.parse_args()
    executable = browser.find()
    if executable is None:
        sys.stderr.write("report_pictures: a Chromium must be there; apt-get install chromium.\n")
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    with browser.started(executable) as page:
        for scheme in SCHEMES:
            take(page, options.report, options.folder / f"report-{scheme}.png", dark=scheme == "dark")
    return 0


if __name__ == "__main__":
    sys.exit(main())
