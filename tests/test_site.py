"""The site builds without a warning, its links lead somewhere, and it asks nobody else for anything."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

import secret_rl
from documents import ROOT

pytestmark = pytest.mark.xdist_group("site")  # built once

ROOMS = ("trajectories", "views", "credit", "shaping", "agents", "experimental", "evaluation", "envs.keys_doors")
MAIN = ("index", "gallery", "troubleshooting", "tutorial", "how-it-works", "reference/credit")
HIGHEST = 14_000  # pixels of a page, with 1,280 across
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
            assert f"{table.stem}.png" in [urldefrag(url)[0] for url in page.fetched]
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


@pytest.fixture(scope="module")
def browser():
    found = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


@contextmanager
def tab(browser, scheme="light", silent=True):
    """A tab; in the end it must have asked for files alone, and, unless it may, logged nothing."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page, errors, requests = context.new_page(), [], []
    page.on("console", lambda message: errors.append(f"{page.url}: {message.text} {message.location}"))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    yield page
    context.close()
    assert errors == [] or not silent
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


@pytest.mark.slow
def test_no_page_is_endless_and_everything_fits_its_column(build, browser):
    measure = """() => [
      document.documentElement.scrollHeight,
      document.documentElement.scrollWidth - innerWidth,
      [...document.querySelectorAll("pre > code")].filter((code) => code.scrollWidth > code.clientWidth + 1).length,
    ]"""
    pages = sorted([*build.glob("*.html"), *build.glob("reference/*.html"), *build.glob("results/*.html")])
    pages.remove(build / "404.html")  # which is shown at any depth
    assert len(pages) > 60
    unfit = []
    with tab(browser) as page:
        for path in pages:
            page.goto(path.as_uri(), wait_until="domcontentloaded")
            high, wide, cut = page.evaluate(measure)
            if high > HIGHEST or wide > 0 or cut:
                unfit.append((path.name, high, wide, cut))
    assert unfit == []


def test_search_works_from_a_folder(build, browser):
    with tab(browser) as page:
        page.goto((build / "results/index.html").as_uri())
        page.locator(".md-search__input").click()
        page.keyboard.type("CoverageWarning")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        found.click()
        page.wait_for_url("**/reference/shaping.html*")


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_nothing_that_axe_finds(build, browser, scheme, width):
    with tab(browser, scheme, silent=False) as page:  # axe-core complains of frames that are files
        page.set_viewport_size({"width": width, "height": 900})
        for name in MAIN if width > 1000 else ("index", "comparison"):
            page.goto((build / f"{name}.html").as_uri())
            page.evaluate("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
            found = Axe().run(page)
            assert found.violations_count == 0, f"{name}, {scheme}, {width}: {found.generate_report()}"


def test_pages_are_dark_as_a_whole_and_formulas_have_their_font(build, browser):
    with tab(browser, "dark") as page:
        page.goto((build / "index.html").as_uri())
        explorer = page.frame_locator("iframe[data-explorer]")
        explorer.locator("html[data-ready][data-theme=dark]").wait_for(state="attached")
        next(frame for frame in page.frames if "triggers" in frame.url).wait_for_url("**episode=**")
        page.locator("label[title=Light]").click()
        explorer.locator("html[data-theme=light]").wait_for(state="attached")
    with tab(browser, "dark") as page:
        page.goto((build / "results/transfer_in_domain.html").as_uri())
        shown = [image for image in page.locator("article img").all() if image.is_visible()]
        assert [image.get_attribute("src") for image in shown] == ["transfer_in_domain-dark.svg#only-dark"]
        assert shown[0].evaluate("(image) => image.naturalWidth") > 300
        page.goto((build / "how-it-works.html").as_uri())
        fonts = page.evaluate(
            "document.fonts.ready.then((fonts) => [...fonts].map((font) => [font.family, font.status]))"
        )
        assert [status for family, status in fonts if "STIX" in family] == ["loaded"]
