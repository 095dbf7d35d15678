"""One source for each text: pages of the site that live elsewhere in the repository, and links that work in both.

Tables of ``paper/results`` and the texts in ``ELSEWHERE`` become pages, with their pictures and runs beside them; long
ones are folded. A
relative link, in any page, is read as it is in the repository: to a text that has a page it leads to that page, to
another file of the repository to a page that shows the file.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
RESULTS = "paper/results"
LEADERBOARD = ROOT / "docs" / "leaderboard"  # made by `make leaderboard`, but for its index

# Texts in the repository, and their pages.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "paper/DEVIATIONS.md": "deviations.md",
    "examples/README.md": "examples.md",
    "benchmarks/results/README.md": "speed.md",
}
# What has no page of its own, and the page that stands for it.
INSTEAD = {
    RESULTS: "results/index.md",
    "examples": "examples.md",
    "benchmarks/results": "speed.md",
}
# The order of the book: what credit finds, then what it is worth. Tables with other names come last.
ORDER = ("credit", "source", "class", "concentration", "window", "ablations", "beyond", "transfer", "deep", "online")

_CODE = re.compile(r"^```.*?^```[ ]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LONG_TABLE = re.compile(r"^\|.*\n\|[ :|-]+\n(?:\|.*\n){40,}", re.MULTILINE)  # rows
_LINK = re.compile(r'\]\(([^)\s#:]+)(#[^)\s]*)?( "[^"]*")?\)')  # no colon: not to another site


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the tables that are there into the navigation."""
    for section in config.nav or []:
        if "Results book" in section:
            section["Results book"] += [{_title(path): f"results/{path.name}"} for path in _tables()]
        if "Credit methods compared" in section:
            pages = [path for path in sorted(LEADERBOARD.glob("*.md")) if path.stem != "index"]
            pages.sort(key=lambda path: path.stem != "leaderboard")
            section["Credit methods compared"] += [{_title(path): f"leaderboard/{path.name}"} for path in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the texts that live elsewhere, what stands beside them, and the files that a page links to."""
    origins = {file.src_uri: f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")}
    origins |= {page: source for source, page in _pages().items()}
    for page, source in origins.items():
        if not source.startswith("docs/"):
            files.append(File.generated(config, page, content=_text(source)))
    for path in _beside_tables():
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    for source in origins.values():
        for link in _LINK.finditer(_CODE.sub("", _text(source))):
            target = _in_repository(link[1], source)
            shown = _page_of(target)
            if shown.startswith("source/") and (ROOT / target).is_file() and shown not in files.src_uris:
                files.append(File.generated(config, shown, content=_code_page(target)))
    config.extra["origins"] = origins
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Make links those of the site; add pictures and runs to tables, and the list of them to their index."""
    uri = page.file.src_uri
    origin = config.extra["origins"].get(uri)
    if origin is None:
        return markdown

    def of_the_site(link: re.Match[str]) -> str:
        target = _in_repository(link[1], origin)
        if not (ROOT / target).exists():
            return link[0]  # for the checks of MkDocs to find
        return f"]({posixpath.relpath(_page_of(target), posixpath.dirname(uri))}{link[2] or ''}{link[3] or ''})"

    markdown = _outside_code(lambda text: _LINK.sub(of_the_site, text), markdown)
    if origin.startswith((RESULTS, "docs/leaderboard/")):
        page.meta["hide"] = ["toc"]  # tables are wide
    if origin.startswith((RESULTS, "benchmarks/")):
        markdown = _LONG_TABLE.sub(_folded, markdown)
    if origin.startswith(RESULTS):
        markdown += _beside(Path(origin).stem, markdown)
    return markdown.replace("<!-- every table -->", _list_of_tables())


def _tables() -> list[Path]:
    def place(path: Path) -> tuple[int, str]:
        return next((i for i, start in enumerate(ORDER) if path.stem.startswith(start)), len(ORDER)), path.stem

    return sorted((ROOT / RESULTS).glob("*.md"), key=place)


def _pages() -> dict[str, str]:
    """Texts outside of docs, and their pages."""
    return {**ELSEWHERE, **{f"{RESULTS}/{path.name}": f"results/{path.name}" for path in _tables()}}


def _beside_tables() -> list[Path]:
    """Pictures, and the runs that tables were made of."""
    return sorted(path for path in (ROOT / RESULTS).iterdir() if path.suffix in (".png", ".json"))


def _beside(stem: str, markdown: str) -> str:
    """The pictures and runs of one table, that is, those whose names go on from its own and from no longer one."""
    stems = sorted((path.stem for path in _tables()), key=len, reverse=True)
    own = [
        path
        for path in _beside_tables()
        if next((s for s in stems if re.match(rf"{re.escape(s)}(?![a-z0-9])", path.stem)), None) == stem
    ]
    pictures = [path for path in own if path.suffix == ".png" and f"]({path.name})" not in markdown]
    lines = [f"![{path.stem.replace('_', ' ')}]({path.name})" for path in pictures]
    runs = [f"[{path.name}]({path.name})" for path in own if path.suffix == ".json"]
    if runs:
        lines.append(f"Every run: {', '.join(runs)}.")
    return "\n\n".join(["", *lines, ""])


def _folded(table: re.Match[str]) -> str:
    rows = table[0].count("\n") - 2
    return f"<details markdown>\n<summary>{rows} rows</summary>\n\n{table[0]}\n</details>\n"


def _list_of_tables() -> str:
    rows = [f"| [{_title(path)}]({path.name}) | `python -m paper {path.stem}` |" for path in _tables()]
    return "\n".join(["| page | made by |", "| --- | --- |", *rows])


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _text(source: str) -> str:
    return (ROOT / source).read_text(encoding="utf-8")


def _in_repository(link: str, origin: str) -> str:
    """What a relative link in a text leads to, from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _page_of(target: str) -> str:
    """The page (or picture) of the site for a path in the repository."""
    if target.startswith("docs/") and not target.endswith(".py"):
        return target.removeprefix("docs/")
    if target.startswith(f"{RESULTS}/") and Path(target).suffix in (".png", ".json"):
        return f"results/{Path(target).name}"
    return _pages().get(target) or INSTEAD.get(target) or f"source/{target}.md"


def _code_page(target: str) -> str:
    language = {".py": "python", ".toml": "toml"}.get(Path(target).suffix, "text")
    return f"# {target}\n\n````{language}\n{_text(target)}````\n"


def _outside_code(change: Callable[[str], str], markdown: str) -> str:
    """Change a text except for its code."""
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])
