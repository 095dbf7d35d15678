"""One HTML file: template, style, script, and the data, which nothing in the page can mistake for code."""

import gzip
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

_SCRIPTS = ("elements.js", "stage.js", "timeline.js", "list.js", "explorer.js")


def pack(content: Any) -> str:
    """JSON, compressed, in letters and digits: no text of the data can end an element or begin one."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpack(page: str) -> Any:
    """The data of a page."""
    _, _, rest = page.partition('<script type="text/plain" id="data">')
    return json.loads(gzip.decompress(b64decode(rest.partition("</script>")[0])))


def page(content: Any, title: str) -> str:
    """The whole page. Its policy lets it load nothing and run nothing but its own script."""
    style, script = _asset("explorer.css"), _script()
    parts = {
        "title": escape(title),
        "policy": escape(
            f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            quote=True,
        ),
        "style": style,
        "script": script,
        "data": pack(content),
    }
    html = _asset("explorer.html")
    before, *rest = html.split("{{")
    joined = [before]
    for piece in rest:
        name, _, after = piece.partition("}}")
        joined += [parts[name], after]
    return "".join(joined)


def _script() -> str:
    """All scripts as one, with names of its own."""
    return "(() => {\n" + "\n".join(_asset(name) for name in _SCRIPTS) + "})();\n"


def _asset(name: str) -> str:
    return files("secret_rl.report.explorer").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
