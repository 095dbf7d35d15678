"""Screenshots of the site's main pages as people see them, in ``runs/screenshots``: ``make screenshots``.

Each page on a desktop, on a phone, and in the dark, in a real browser, from the folder that ``make docs`` filled. Names
of pages as arguments take those alone.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SITE, OUT = Path("build/site"), Path("runs/screenshots")
PAGES = (
    "index", "gallery", "installation", "troubleshooting", "tutorial", "ten-tasks", "agents", "how-it-works", "limits",
    "comparison", "world-3d", "explorer", "command-line", "leaderboard/leaderboard", "results/transfer_in_domain",
    "results/keys_doors_heat", "reference/credit", "changelog", "citing",
)  # fmt: skip
LOOKS = {"desktop": (1280, "light"), "phone": (390, "light"), "dark": (1280, "dark")}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MOST = 2_400  # pixels from the top


def main(names: list[str]) -> None:
    """Take them, and say of each page how high it is and what is wider than its place."""
    browser_path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    OUT.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for look, (width, scheme) in LOOKS.items():
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            for name in names or PAGES:
                page.goto((SITE / f"{name}.html").resolve().as_uri())
                high, wide = page.evaluate(
                    "[document.documentElement.scrollHeight, document.documentElement.scrollWidth - innerWidth]"
                )
                page.set_viewport_size({"width": width, "height": min(high, MOST)})  # what is not in view is not drawn
                page.wait_for_timeout(600)
                page.screenshot(path=OUT / f"{name.replace('/', '-')}-{look}.png")
                page.set_viewport_size({"width": width, "height": 900})
                print(f"{look:8} {name:28} {high:6} px high{f', {wide} px too wide' if wide > 0 else ''}", flush=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
