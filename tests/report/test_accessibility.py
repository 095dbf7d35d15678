"""Pages as axe-core sees them: nothing that keeps people who use a keyboard, a screen reader or little contrast out."""

import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from tests.report.test_explorer_browser import BROWSERS

import secret_rl as srl
from secret_rl.credit.base import method_class
from secret_rl.report import explore, write_report
from secret_rl.report.runs import RunFolder

pytestmark = [pytest.mark.xdist_group("explorer page"), pytest.mark.usefixtures("quick"), pytest.mark.slow]


@pytest.fixture(scope="module")
def pages(task, tmp_path_factory):
    """An explorer with another method beside, and a report of the same model, as the demo leaves them."""
    secret, data = task
    folder = tmp_path_factory.mktemp("pages")
    beside = {"uniform": method_class("uniform")().fit(data)}
    explore(
        secret,
        data,
        folder / "explorer.html",
        trajectories=8,
        beside=beside,
        report=folder / "report.html",
        progress=False,
    )
    quality = srl.credit_quality(secret.attribute(data), data)
    with RunFolder(folder / "run", "fit", {"seed": 0}) as run:
        run.finish(data=data.summary().to_json(), fit=secret.report.to_json(), quality={"held out": quality.to_json()})
    write_report([folder / "run"], folder / "report.html")
    return folder


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_nothing_that_axe_finds(pages, width, scheme):
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        # The policies of the pages would stop axe-core, too.
        context = browser.new_context(bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 900})
        page = context.new_page()
        page.goto((pages / "explorer.html").as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.locator("#with").select_option("uniform")
        page.locator("#overview").evaluate("(node) => { node.open = true; }")
        page.locator("#zoom-in").click()
        for name in ("all", "mispredicted"):
            page.locator(f'[data-filter="{name}"]').click()
            violations_of(page)
        page.locator("#report").click()
        page.wait_for_selector("h2")
        violations_of(page)
        page.locator("a", has_text="Credit explorer").click()
        page.wait_for_selector("html[data-ready]", state="attached")
        browser.close()


def violations_of(page):
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
