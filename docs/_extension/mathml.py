"""Formulas of the site as MathML: browsers show it without a script, and without a network."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer of formulas, which `html_math_renderer` names."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(page: Any, node: Any) -> None:
    page.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(page: Any, node: Any) -> None:
    page.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode
