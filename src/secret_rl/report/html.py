"""HTML from plain values: everything that is not marked as HTML is escaped."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

# Nothing is fetched and no script is run, whatever a name in a run may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --text: #1a1a1f; --soft: #5c5c66; --line: #d8d8de; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15151a; --text: #e8e8ec; --soft: #a0a0ab; --line: #3a3a44; }
}
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 72rem; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin-bottom: 0.3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.6rem 0; }
th, td { padding: 0.2rem 0.9rem 0.2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; max-width: 30rem; font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; }
.verdict { font-size: 1.1rem; margin: 0.4rem 0; }
.banner { border: 2px solid #c04a00; border-radius: 6px; padding: 0.5rem 0.9rem; font-weight: 600; }
.note, figcaption, summary { color: var(--soft); }
svg, img { max-width: 100%; height: auto; }
svg text { fill: currentColor; }
figure { margin: 0.8rem 0; }
"""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *content: str, kind: str = "") -> Html:
    """<tag class="kind">content</tag>."""
    opening = f'<{tag} class="{kind}">' if kind else f"<{tag}>"
    return Html(f"{opening}{join(content)}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    """Parts one after the other, each escaped unless it is HTML."""
    return Html("\n".join(part if isinstance(part, Html) else escape(part) for part in parts))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table whose first column names the rows."""
    head = element("tr", *(element("th", cell) for cell in header))
    body = [element("tr", element("th", row[0]), *(element("td", cell) for cell in row[1:])) for row in rows]
    return element("div", element("table", element("thead", head), element("tbody", *body)), kind="scroll")


def folded(summary: str, *content: str) -> Html:
    """Content that is shown when asked for."""
    return element("details", element("summary", summary), *content)


def picture(png: bytes, caption: str) -> Html:
    """A picture that is part of the page."""
    source = base64.b64encode(png).decode("ascii")
    image = Html(f'<img alt="{escape(caption)}" src="data:image/png;base64,{source}">')
    return element("figure", image, element("figcaption", caption))


def page(title: str, *content: str) -> str:
    """A whole page in one file."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{join(content)}\n</body>\n</html>\n"
    )
