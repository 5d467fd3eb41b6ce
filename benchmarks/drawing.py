"""Plots that come out the same octet by octet from the same figures."""

from pathlib import Path
from typing import Any


def pyplot() -> Any:
    """Matplotlib that writes SVG with fixed identifiers."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dapple"
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Writes and closes a figure, without its date."""
    figure.savefig(path, metadata={"Date": None})
    pyplot().close(figure)
