"""Formulas become MathML when the site is built: browsers show it without a script."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.pages import Page

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>', re.DOTALL)
_log = get_plugin_logger("mathematics")


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Replace what ``pymdownx.arithmatex`` marked."""

    def as_mathml(formula: re.Match[str]) -> str:
        display = "block" if formula[1] == "div" else "inline"
        mathml = convert(html.unescape(formula[2]).strip(), display=display)
        if "\\" in html.unescape(mathml):  # what the converter does not know it passes on
            _log.warning(f"{page.file.src_uri}: not understood in the formula {formula[2].strip()!r}")
        return f'<{formula[1]} class="formula">{mathml}</{formula[1]}>'

    return _FORMULA.sub(as_mathml, content)
