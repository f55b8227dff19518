"""Formulas as MathML, which browsers show without a script and without a network."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_LOG = logging.getLogger(__name__)


def _shown(node: nodes.Element, as_block: bool) -> str:
    try:
        shown = str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        _LOG.warning("the formula %s: %s", node.astext(), error, location=node)
        return ""
    # both bars of a norm are of one height, also where an index follows the second
    return re.sub(r"<mo( [^>]*)?>([|‖])</mo>", r'<mo stretchy="false">\2</mo>', shown)


def _inline(writer, node):
    writer.body.append(_shown(node, False))
    raise nodes.SkipNode


def _block(writer, node):
    writer.body.append(f'<div class="formula">{_shown(node, True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
