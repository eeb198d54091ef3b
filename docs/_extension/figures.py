"""Figures that a block of a tutorial ends with: shown, as notebooks show them."""

import ast
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

LAST = "___"  # where sphinx-gallery keeps the value of the last expression


def last_figure(block: Any, known: dict[str, Any], settings: dict[str, Any]) -> str:
    """An image scraper: the figure that is the value of a block, as a picture on its page."""
    statements = ast.parse(block[1]).body
    figure = known["example_globals"].get(LAST)
    if not (statements and isinstance(statements[-1], ast.Expr) and isinstance(figure, Figure)):
        return ""
    path = next(known["image_path_iterator"])
    figure.savefig(path, dpi=150)
    return figure_rst([path], settings["src_dir"])
