"""The site builds without a warning, its links lead somewhere, and it asks nobody else for anything."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

import secret_rl
from documents import ROOT

pytestmark = pytest.mark.xdist_group("site")  # built once

ROOMS = ("trajectories", "views", "credit", "shaping", "agents", "experimental", "evaluation", "envs.keys_doors")
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class Page(HTMLParser):
    """What a page links to, what it fetches by itself, its anchors and its words."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.fetched, self.tags, self.anchors = [], [], [], set()
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("href") and given.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(given["href"])
        if tag in FETCHED and given.get(FETCHED[tag]):
            self.fetched.append(given[FETCHED[tag]])
        self.fetched += re.findall(r"url\(([^)]+)\)", given.get("style") or "")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--site-dir", folder]
    how = {"cwd": ROOT, "env": {**os.environ, "NO_MKDOCS_2_WARNING": "1"}, "timeout": 300}
    done = subprocess.run(command, capture_output=True, text=True, **how)
    assert done.returncode == 0, done.stderr
    expected = ("Cleaning site directory", "Building documentation to", "Documentation built in")
    messages = [line.partition("-")[2].strip() for line in (done.stdout + done.stderr).splitlines()]
    assert [line for line in messages if not line.startswith(expected)] == [], "no warning"
    return folder.resolve()


@pytest.fixture(scope="module")
def pages(build):
    return {path.relative_to(build).as_posix(): Page(path) for path in sorted(build.rglob("*.html"))}


def test_links_and_pictures_lead_somewhere(build, pages):
    broken = []
    for name, page in pages.items():
        for target in [*page.links, *page.fetched]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or name == "404.html":  # shown at any depth, with absolute links
                continue
            path, anchor = urldefrag(target)
            found = ((build / name).parent / unquote(urlsplit(path).path) if path else build / name).resolve()
            known = {"__skip"}
            if anchor and found.suffix == ".html" and found.is_file():
                known |= pages[found.relative_to(build).as_posix()].anchors
            if not found.is_file() or (anchor and found.suffix == ".html" and unquote(anchor) not in known):
                broken.append((name, target))
    assert broken == []


def test_nothing_is_fetched_from_elsewhere(build, pages):
    outside = [(name, url) for name, page in pages.items() for url in page.fetched if urlsplit(url).netloc]
    for path in build.rglob("*.css"):
        imported = re.findall(r"@import|url\(\s*['\"]?(?:https?:)?//", path.read_text(encoding="utf-8"))
        outside += [(path.name, found) for found in imported]
    assert outside == []
    for page in pages.values():
        for script in re.findall(r"<script(?![^>]*application/json)[^>]*>(.*?)</script>", page.text, re.DOTALL):
            assert "http" not in script.replace("http://www.w3.org/2000/svg", ""), (
                "but for the name of SVG in explorers"
            )


def test_every_table_of_results_has_a_page_with_its_figure(pages):
    for table in (ROOT / "paper/results").glob("*.md"):
        page = pages[f"results/{table.stem}.html"]
        if table.with_suffix(".png").exists():
            assert f"{table.stem}.png" in page.fetched
        assert f"{table.stem}.html" in pages["results/index.html"].links
        if table.with_suffix(".json").exists():
            assert f"{table.stem}.json" in page.links


def test_formulas_are_mathml(pages):
    assert pages["how-it-works.html"].tags.count("math") > 20
    for name, page in pages.items():
        text = re.sub(r"<(code|pre)\b.*?</\1>", "", page.text, flags=re.DOTALL)
        assert "arithmatex" not in text and "$$" not in text and "\\(" not in text, name


def test_every_public_name_is_in_the_reference_with_examples_as_code(pages):
    reference = {name: page for name, page in pages.items() if name.startswith("reference/")}
    anchors = set().union(*(page.anchors for page in reference.values()))
    top = [name for name in secret_rl.__all__ if not isinstance(getattr(secret_rl, name), ModuleType | str)]
    missing = [name for name in top if f"secret_rl.{name}" not in anchors]
    for room in ROOMS:
        names = import_module(f"secret_rl.{room}").__all__
        missing += [name for name in names if not {f"secret_rl.{name}", f"secret_rl.{room}.{name}"} & anchors]
    assert missing == [] and "secret_rl.Secret.fit" in anchors
    credit = reference["reference/credit.html"].text
    assert "&gt;&gt;&gt;" in credit and "_remembered" not in credit
    for name, page in reference.items():
        assert "<blockquote>" not in page.text and "::</p>" not in page.text, name


def test_texts_of_the_repository_are_there_once(pages):
    """Pages that live elsewhere are not copied into docs."""
    for name in ("contributing", "changelog", "deviations", "examples", "speed"):
        assert f"{name}.html" in pages
        assert not (ROOT / f"docs/{name}.md").exists()
