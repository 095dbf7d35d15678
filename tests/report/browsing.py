"""A real browser for tests of pages: Debian's chromium, driven by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The path of the browser; it is an error, not a reason to skip, if there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, f"none of {', '.join(NAMES)} is installed: run `make chromium`, or apt-get install chromium"
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield running
        running.close()


class Seen:
    """A page, and all that went wrong in it or left it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def opened(running: Browser, path: Path | str, width: int = 1200, **options: Any) -> Iterator[Seen]:
    """A page from disk, ready; afterwards it must have been quiet and asked for nothing but itself."""
    context = running.new_context(viewport={"width": width, "height": 800}, **options)
    seen = Seen(context.new_page())
    address = path if isinstance(path, str) else path.resolve().as_uri()
    seen.page.goto(address)
    seen.page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
    yield seen
    context.close()
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [address]
