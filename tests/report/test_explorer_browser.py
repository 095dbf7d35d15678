"""The explorer page in a real browser: from disk, silent, by mouse and by keyboard, dark and narrow."""

import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from urllib.parse import urldefrag
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import sync_playwright
from tests.report.conftest import episodes, fitted, numbers

import secret_rl as srl
from secret_rl.credit.base import method_class
from secret_rl.credit.references import oracle_attributions
from secret_rl.report import explore
from secret_rl.report.explorer.build import unpack

pytestmark = [pytest.mark.xdist_group("explorer page"), pytest.mark.usefixtures("quick"), pytest.mark.slow]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found, f"none of {', '.join(BROWSERS)} is installed: run `make chromium`, or apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


@contextmanager
def opened(browser, path, width=1200, **options):
    """A page, ready; afterwards it must have logged nothing and requested nothing but itself."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    page, errors, requests = context.new_page(), [], []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = path if isinstance(path, str) else path.resolve().as_uri()
    page.goto(address)
    page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
    yield page
    context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [urldefrag(address)[0]]


@pytest.fixture(scope="module")
def triggers(task, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "triggers.html"
    explore(*task, path, trajectories=20, progress=False)
    return path, unpack(path.read_text(encoding="utf-8"))


def pick(page, entry):
    page.locator(f'#list [data-episode="{entry["episode"]}"]').click()
    assert page.locator("#name").inner_text() == f"Episode {entry['episode']}"


def step_of(page):
    return int(page.locator("#scrub").input_value())


def shot(page):
    """The stage as pixels."""
    return np.asarray(Image.open(BytesIO(page.locator("#stage").screenshot())).convert("RGB"))


def rewarded(content):
    """Entries with a reward that some earlier step was looked at for."""
    return [e for e in content["trajectories"] if e["rewards"] and e["rewards"][-1][0] > 3]


def test_arcs_are_the_attention_of_the_model(browser, task, triggers):
    path, content = triggers
    secret, data = task
    attributed = secret.attribute(data)
    rows = {(int(attributed.episode[r]), int(attributed.step[r])): attributed.row(r) for r in range(len(attributed))}
    checked = 0
    with opened(browser, path) as page:
        for entry in rewarded(content)[:6]:
            pick(page, entry)
            page.keyboard.press("Escape")
            assert page.locator("#timeline .arc").count() == 0
            assert "Choose a reward" in page.locator("#earned").inner_text()
            step = entry["rewards"][-1][0]
            mark = page.locator(f'[data-strip="reward"] [data-reward="{step}"]')
            mark.click()
            row = next(row for row in entry["attention"] if row["step"] == step)
            stored = dict(zip(row["to"], row["weights"], strict=True))
            drawn = {}
            for arc in page.locator("#timeline .arc").all():
                weight = drawn[int(arc.get_attribute("data-step"))] = int(arc.get_attribute("data-weight"))
                width = float(arc.get_attribute("stroke-width"))  # thickness is attention
                assert width == pytest.approx(max(0.5, 16 * weight / 10_000), abs=0.01)
            assert drawn == {at: weight for at, weight in stored.items() if weight >= 100}
            if (entry["episode"], step) in rows:
                truth = rows[entry["episode"], step]
                assert all(weight / 10_000 == pytest.approx(truth[at], abs=1e-4) for at, weight in stored.items())
                checked += 1
            strongest = max(stored, key=stored.get)
            page.locator(f'#earned [data-earner="{strongest}"]').click()
            assert step_of(page) == strongest + 1
            mark.click()  # the same again: none
            assert page.locator("#timeline .arc").count() == 0
    assert checked


def arcs_of(page, name):
    return page.locator(f'[data-strip="{name}"] .arc').count()


def test_long_episodes_are_looked_at_from_near(browser, tmp_path):
    data = episodes(12, numbers, 3000, last=(1.0,))
    made = explore(method_class("recency")().fit(data), data, tmp_path / "long.html", trajectories=2, progress=False)
    with opened(browser, made.path) as page:
        assert page.locator(".whole").count() == 0
        for _ in range(5):
            page.locator("#zoom-in").click()
        ticks = [int(tick) for tick in page.locator("#timeline text[text-anchor=middle]").all_text_contents()]
        assert min(ticks) >= 2900 and max(ticks) == 3000, "the reward stays in view"
        assert page.locator(".whole").count() == 1
        page.locator("#first").click()
        ticks = [int(tick) for tick in page.locator("#timeline text[text-anchor=middle]").all_text_contents()]
        assert max(ticks) < 110, "the view follows"
        whole = page.locator(".whole .all").bounding_box()
        page.mouse.click(whole["x"] + whole["width"] / 2, whole["y"] + 5)
        ticks = [int(tick) for tick in page.locator("#timeline text[text-anchor=middle]").all_text_contents()]
        assert 1400 < min(ticks) < max(ticks) < 1600 and step_of(page) == 0
        box = page.locator("#timeline svg").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
        assert 1400 < step_of(page) < 1600
        page.wait_for_timeout(400)
        address = page.url
        page.keyboard.press("0")
        assert page.locator(".whole").count() == 0
    with opened(browser, address) as page:
        again = [int(tick) for tick in page.locator("#timeline text[text-anchor=middle]").all_text_contents()]
        assert again == ticks


def test_other_methods_have_strips_with_their_credit_for_the_chosen_reward(browser, task, tmp_path):
    secret, data = task
    other = oracle_attributions(data, np.asarray(data.annotations["trigger_activated"], np.bool_))
    beside = {"oracle": other, "uniform": method_class("uniform")().fit(data)}
    path = tmp_path / "beside.html"
    explore(secret, data, path, trajectories=20, beside=beside, progress=False)
    entries = [e for e in rewarded(unpack(path.read_text(encoding="utf-8"))) if e["rewards"][-1][1] > 0]
    with opened(browser, path) as page:
        for entry in entries[:3]:
            pick(page, entry)
            step = entry["rewards"][-1][0]
            page.keyboard.press("Escape")
            page.locator(f'[data-strip="reward"] [data-reward="{step}"]').click()
            found = {name: page.locator(f'[data-strip="{name}"] rect[data-step]') for name in beside}
            events = np.flatnonzero(data[entry["episode"]].annotations["trigger_activated"][: step + 1])
            steps = [int(bar.get_attribute("data-step")) for bar in found["oracle"].all()]
            assert steps == events.tolist() and found["uniform"].count() == step + 1
            page.keyboard.press("Escape")
            assert page.locator('[data-strip="oracle"] rect[data-step]').count() == 0
        pick(page, entries[0])
        page.locator("#with").select_option("oracle")
        step = entries[0]["rewards"][-1][0]
        arcs = page.locator('[data-strip="oracle"] .arc')
        shares = {int(arc.get_attribute("data-step")): int(arc.get_attribute("data-weight")) for arc in arcs.all()}
        events = np.flatnonzero(data[entries[0]["episode"]].annotations["trigger_activated"][: step + 1])
        assert shares == {int(t): round(10_000 / len(events)) for t in events}
        assert page.locator("#other-stage").is_visible() and page.locator("#other-name").inner_text() == "oracle"
        assert page.locator("#earned [data-other-earner]").count() == len(events)
        assert "average precision" in page.locator("#earned").inner_text()
        page.wait_for_timeout(400)
        address = page.url
        page.locator("#with").select_option("")
        assert page.locator("#other-stage").is_hidden() and arcs.count() == 0
    with opened(browser, address) as page:
        assert arcs_of(page, "oracle") == len(events) and page.locator("#with").input_value() == "oracle"
        page.locator("#with").select_option("")
        negative = next((e for e in entries if e["rewards"][0][1] < 0), None)
        if negative is not None:
            pick(page, negative)
            page.keyboard.press("Escape")
            page.locator(f'[data-strip="reward"] [data-reward="{negative["rewards"][0][0]}"]').click()
            assert "no credit" in page.locator('[data-strip="oracle"]').inner_text(), "it credits positive rewards"


def test_steps_and_rewards_by_keyboard_button_and_pointer(browser, triggers):
    path, content = triggers
    entry = max(content["trajectories"], key=lambda e: e["steps"])
    steps = entry["steps"]
    with opened(browser, path) as page:
        pick(page, entry)
        page.locator("body").press("Home")
        assert step_of(page) == 0 and "Start" in page.locator("#facts").inner_text()
        for key, expected in (
            ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Shift+ArrowRight", 11), ("End", steps),
            ("ArrowRight", steps), ("Home", 0), ("ArrowLeft", 0),
        ):  # fmt: skip
            page.keyboard.press(key)
            assert step_of(page) == expected, key
        page.locator("#on").click()
        assert f"Step 1 of {steps}" in page.locator("#facts").inner_text()
        page.locator("#scrub").focus()
        page.keyboard.press("ArrowRight")
        assert step_of(page) == 2
        box = page.locator("#timeline svg").bounding_box()
        page.mouse.click(box["x"] + box["width"] - 10, box["y"] + 60)
        assert step_of(page) == steps
        page.keyboard.press(" ")  # from the end it plays from the start
        deadline = time.monotonic() + 20
        while step_of(page) <= 2 and time.monotonic() < deadline:  # the policy lets playwright wait for no expression
            page.wait_for_timeout(100)
        page.keyboard.press(" ")
        now = step_of(page)
        page.wait_for_timeout(400)
        assert 2 < step_of(page) == now < steps
        entry = next(e for e in content["trajectories"] if e["attention"])
        first = entry["attention"][0]["step"]
        pick(page, entry)
        chosen = page.locator(f'.mark.chosen[data-reward="{first}"]')
        for key in ("Escape", "Home", "."):
            page.keyboard.press(key)
        assert chosen.count() >= 1
        page.keyboard.press("Escape")
        page.locator(f'.mark[data-reward="{first}"]').first.focus()
        page.keyboard.press("Enter")
        assert chosen.count() >= 1
        assert page.evaluate("document.activeElement.dataset.reward") == str(first), "the focus stays"


def test_facts_of_a_step_are_those_of_the_data(browser, task, triggers):
    path, content = triggers
    _, data = task
    entry = rewarded(content)[0]
    with opened(browser, path) as page:
        pick(page, entry)
        for step in (0, entry["steps"] - 1):
            page.locator("#scrub").fill(str(step + 1))
            shown = page.locator("#facts dl").inner_text()
            assert ["up", "down", "left", "right"][int(data[entry["episode"]].actions[step])] in shown
            wrong = step in entry["wrong"]
            assert ("✕" in shown) == wrong and ("✓" in shown) == (not wrong)
            shaped = dict(map(tuple, entry["rewards"])).get(step, 0) + entry["shaping"][step]
            said = page.locator("#facts dt", has_text="Shaped").locator("xpath=following-sibling::dd[1]").inner_text()
            assert float(said.replace("\N{MINUS SIGN}", "-")) == pytest.approx(shaped, rel=0.01, abs=1e-4)
        for name, marked in entry["truth"].items():
            for step in marked:
                page.locator("#scrub").fill(str(step + 1))
                assert f"◆ {name}" in page.locator("#facts").inner_text()


def test_the_maze_is_drawn_in_the_colours_of_the_paper_with_heat(browser, triggers):
    path, content = triggers
    entry = next(e for e in content["trajectories"] if e["truth"]["trigger_activated"])
    scene = entry["scene"]
    size = scene["size"]
    with opened(browser, path) as page:

        def colour(cell):
            picture = shot(page)
            side = picture.shape[1] / (size + 2)
            row, column = divmod(cell, size)
            return picture[int((row + 1.25) * side), int((column + 1.25) * side)].tolist()

        pick(page, entry)
        page.locator("#heat").uncheck()
        page.keyboard.press("Home")
        colours = {"agent": [255, 214, 10], "triggers": [220, 38, 38], "prizes": [255, 128, 192]}
        assert colour(scene["agent"][0]) == colours["agent"]
        for kind in ("triggers", "prizes"):
            assert all(colour(cell) == colours[kind] for cell, _ in scene[kind])
        gone = next(gone for _, gone in scene["triggers"] if gone > 0)
        page.locator("#scrub").fill(str(gone))
        assert colour(scene["agent"][gone]) == colours["agent"]
        assert "0 switches left" in page.locator("#stage").get_attribute("aria-label")
        page.locator("#list").focus()  # away from the box: its ring shows
        page.keyboard.press("h")
        right = [row for row in entry["attention"] if row["kind"] == "right"] or entry["attention"]
        rewards = dict(map(tuple, entry["rewards"]))
        row = next((row for row in right if rewards.get(row["step"], 0) > 0), right[0])
        heat = {}
        for step, weight in zip(row["to"], row["weights"], strict=True):
            heat[scene["agent"][step + 1]] = heat.get(scene["agent"][step + 1], 0) + weight
        hottest = max(heat, key=heat.get)
        if hottest != scene["agent"][gone]:
            red, _, blue = colour(hottest)
            assert blue > red  # sky blue


def test_a_filter_chooses_the_reward_that_it_is_about(browser, triggers):
    path, content = triggers
    kinds, chosen = {"missed": "missed", "false-alarm": "false alarm"}, 0
    with opened(browser, path) as page:
        for name, kind in kinds.items():
            page.locator(f'[data-filter="{name}"]').click()
            for item in page.locator("#list [data-episode]").all()[:3]:
                item.click()
                number = int(item.get_attribute("data-episode"))
                entry = next(e for e in content["trajectories"] if e["episode"] == number)
                steps = [row["step"] for row in entry["attention"] if row["kind"] == kind]
                chosen += 1
                assert step_of(page) - 1 in steps
                assert page.locator(f'.mark.chosen[data-reward="{step_of(page) - 1}"]').count()
        page.locator('[data-filter="mispredicted"]').click()
        number = int(page.locator("#list [aria-selected=true]").get_attribute("data-episode"))
        entry = next(e for e in content["trajectories"] if e["episode"] == number)
        assert step_of(page) == entry["wrong"][0] + 1
    assert chosen


def listed(page):
    return {int(item.get_attribute("data-episode")) for item in page.locator("#list [data-episode]").all()}


def test_a_cell_of_the_confusion_table_lists_what_it_counts(browser, triggers):
    path, content = triggers
    entries, over = content["trajectories"], content["overview"]
    with opened(browser, path) as page:
        shown = page.locator("#confusion tbody td").all_inner_texts()
        counts = [int(text.split()[0].replace(",", "")) for text in shown]
        assert counts == np.ravel(over["confusion"]).tolist()
        for button in page.locator("#confusion button").all():
            actual, predicted = map(int, button.get_attribute("data-cell").split("-"))
            button.click()
            pairs = {e["episode"]: list(zip(e["actual"], e["predicted"], strict=True)) for e in entries}
            assert listed(page) == {number for number, pair in pairs.items() if (actual, predicted) in pair}
            episode = int(page.locator("#list [aria-selected=true]").get_attribute("data-episode"))
            assert pairs[episode].index((actual, predicted)) == step_of(page) - 1
            if actual != predicted:
                assert page.locator(f'.mark.chosen[data-reward="{step_of(page) - 1}"]').count()
            assert button.get_attribute("aria-pressed") == "true"
        button.click()
        assert listed(page) == {e["episode"] for e in entries}
        bar = page.locator("#distances [data-far]").first
        bar.press("Enter")
        low, high = map(int, bar.get_attribute("data-far").split("-"))
        rows = [(e, r) for e in entries for r in e["attention"] if r["kind"] == "right"]
        far = {e["episode"] for e, r in rows if low <= r["step"] - r["to"][int(np.argmax(r["weights"]))] <= high}
        assert listed(page) == far


def test_the_address_holds_the_view(browser, triggers):
    path, content = triggers
    entries = sorted(content["trajectories"], key=lambda e: -e["steps"])
    entry = next(e for e in entries[:-1] if e["attention"])
    with opened(browser, path, color_scheme="light") as page:
        page.locator("#theme").click()
        page.locator("#search").fill(f"steps>{entries[-1]['steps']}")
        page.locator("#sort").select_option("steps")
        lengths = {e["episode"]: e["steps"] for e in entries}
        order = [int(item.get_attribute("data-episode")) for item in page.locator("#list [data-episode]").all()]
        assert [lengths[n] for n in order] == sorted(
            (n for n in lengths.values() if n > min(lengths.values())), reverse=True
        )
        pick(page, entry)
        step = entry["attention"][0]["step"]
        page.keyboard.press("Escape")
        page.locator(f'.mark[data-reward="{step}"]').first.click()
        page.locator("#scrub").fill("2")
        page.wait_for_timeout(400)
        address = page.url
        arcs = page.locator("#timeline .arc").count()
    assert f"episode={entry['episode']}" in address and "theme=dark" in address
    with opened(browser, address, color_scheme="light") as page:
        assert page.locator("#name").inner_text() == f"Episode {entry['episode']}" and step_of(page) == 2
        assert page.locator(f'.mark.chosen[data-reward="{step}"]').count() and arcs == page.locator(".arc").count()
        assert page.locator("html").get_attribute("data-theme") == "dark"
        assert [int(item.get_attribute("data-episode")) for item in page.locator("#list [data-episode]").all()] == order
        page.evaluate("window.location.hash = 'episode=9999&step=x&reward=-5&filter=no&cell=<b>&sort=no&theme=no'")
        page.wait_for_timeout(400)
        assert len(listed(page)) == len(entries), "what an address says wrongly is passed over"


def test_the_page_says_how_good_credit_is_and_what_is_left_out(browser, task, triggers):
    path, content = triggers
    judged = content["overview"]["quality"]
    with opened(browser, path) as page:
        said = page.locator("#verdict").inner_text()
        assert f"average precision {judged['average_precision']:.3f}" in said and "history gain" in said
        assert "20 trajectories of 400; 380 are left out" in page.locator("#about").inner_text()
        assert page.locator("#report").is_hidden()


def saved(page, kind, folder):
    with page.expect_download() as download:
        page.locator(f"#save-{kind}").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.parametrize("ratio", [1, 2])
def test_the_view_and_the_episode_are_saved_as_pictures(browser, triggers, tmp_path, ratio):
    path, content = triggers
    entry = min(rewarded(content), key=lambda e: e["steps"])
    with opened(browser, path, device_scale_factor=ratio) as page:
        pick(page, entry)
        drawing = saved(page, "svg", tmp_path)
        root = ElementTree.parse(drawing).getroot()
        width, height = (int(root.get(side)) for side in ("width", "height"))
        words = " ".join(root.itertext())
        assert f"Episode {entry['episode']}" in words and content["model"] in words
        assert ("need not have earned" in words) == (content["doubt"] is not None)
        nodes = [node for node in root.iter() if isinstance(node.tag, str)]
        addresses = [value for node in nodes for name, value in node.attrib.items() if name.endswith("href")]
        assert addresses and all(value.startswith("data:image/png;base64,") for value in addresses)
        assert not any("var(" in value or name == "class" for node in nodes for name, value in node.attrib.items())
        assert sum(node.tag.endswith("path") and node.get("stroke-linecap") == "round" for node in nodes) == (
            page.locator("#timeline .arc").count()
        )
        picture = Image.open(saved(page, "png", tmp_path)).convert("RGB")
        assert picture.size == (2 * width, 2 * height) and len(set(picture.resize((99, 99)).getdata())) > 50
        before = step_of(page)
        film = Image.open(saved(page, "gif", tmp_path))
        assert film.format == "GIF" and film.n_frames == entry["steps"] + 1 and film.info["loop"] == 0
        assert step_of(page) == before, "the page is left as it was"
        page.locator("#scrub").fill("2")
        stage = shot(page)
        film.seek(2)
        frame = np.asarray(film.convert("RGB"))
        shade = 255 - 214 + 10  # the agent is where it is on the page
        spots = [(np.abs(each.astype(int) - [255, 214, 10]).sum(-1) < shade) for each in (frame, stage)]
        rows, columns = (np.argwhere(spot).mean(0) for spot in spots)
        assert columns[0] / stage.shape[0] == pytest.approx((rows[0] - 48) / (stage.shape[0] / ratio), abs=0.05)
        film.seek(film.n_frames - 1)
        film.load()


def test_filters_and_the_list_by_keyboard(browser, triggers):
    path, content = triggers
    entries = content["trajectories"]
    lengths = {e["episode"]: e["steps"] for e in entries}
    with opened(browser, path) as page:

        def shown(name):
            page.locator(f'[data-filter="{name}"]').click()
            assert page.locator(f'[data-filter="{name}"]').get_attribute("aria-pressed") == "true"
            return [int(item.get_attribute("data-episode")) for item in page.locator("#list [role=option]").all()]

        assert set(shown("successful")) == {e["episode"] for e in entries if e["return"] > 0}
        assert set(shown("mispredicted")) == {e["episode"] for e in entries if e["wrong"]}
        longest = [lengths[episode] for episode in shown("longest")]
        assert longest == sorted(longest, reverse=True) and longest[0] == max(lengths.values())
        assert len(longest) >= len(entries) / 4
        everything = shown("all")
        assert set(everything) == set(lengths)
        page.locator("#list").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        assert page.locator("#name").inner_text() == f"Episode {everything[1]}"
        assert page.locator("#list [aria-selected=true]").get_attribute("data-episode") == str(everything[1])
        page.keyboard.press("End")
        assert page.locator("#name").inner_text() == f"Episode {everything[-1]}"


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_dark_or_light_and_narrow_as_a_phone(browser, triggers, scheme):
    path, content = triggers

    def is_dark(page):
        colour = page.locator("body").evaluate("(node) => getComputedStyle(node).backgroundColor")
        return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) < 180

    with opened(browser, path, width=360, has_touch=True, color_scheme=scheme) as page:
        assert is_dark(page) == (scheme == "dark")
        page.locator("#theme").click()
        assert is_dark(page) != (scheme == "dark")
        assert page.locator("#list [role=option]").count() == 20
        for entry in (*content["trajectories"][:3], rewarded(content)[0]):
            pick(page, entry)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert all(control.bounding_box()["height"] >= 44 for control in page.locator(".buttons button").all())
        page.keyboard.press("Escape")
        page.locator(f'[data-strip="reward"] [data-reward="{entry["rewards"][-1][0]}"]').tap()
        assert page.locator("#timeline .arc").count()


@pytest.mark.parametrize(("verdict", "evidence"), [("credit", 2.0), ("not learned", 2.0), ("credit", 0.0)])
def test_only_credit_is_called_earned(browser, task, tmp_path, monkeypatch, verdict, evidence):
    secret, data = task
    report = replace(secret.report, verdict=verdict, decided=(0.5, 1.0, 0.5), evidence=(2.0, 0.0, evidence))
    monkeypatch.setattr(secret, "report", report)
    earned = verdict == "credit" and evidence > 0
    made = explore(secret, data, tmp_path / "page.html", trajectories=10, progress=False)
    with opened(browser, made.path) as page:
        shown = page.locator("#verdict").inner_text()
        assert shown.startswith(f"model: seed 0, {secret.report.steps:,} updates") and f"verdict: {verdict}; " in shown
        assert page.locator("#doubt").is_visible() == (verdict != "credit")
        words = " ".join(page.locator(part).inner_text() for part in ("#earned", "#facts"))
        strip = page.locator("#timeline [data-strip]").first.get_attribute("data-strip")
        assert strip == ("earned by" if earned else "looked at")
        assert ("earned" in words.lower()) == earned and strip in words.lower()
        assert ("nothing else is found" in words) == (evidence == 0)
        assert page.locator("#facts .chance span").all_inner_texts() == ["+1", "0", "-1"]


def test_a_hostile_string_runs_no_script(browser, tmp_path):
    owned = "document.title='owned'"
    evil = f"</script><img src=x onerror={owned}><script>{owned}</script>\u2028\"'`${{1}}{{{{1}}}}"
    data = episodes(
        12, lambda rng, rows: {evil: numbers(rng, rows)}, 12,
        meta={"env_id": f"antigravity:{evil}", "env_options": {evil: evil}},  # the colon would import a module
        annotations={f"event {evil}": np.arange(12) == 11},
    )  # fmt: skip
    made = explore(fitted(data), data, tmp_path / "evil.html", title=evil, progress=False)
    assert "<img" not in made.path.read_text(encoding="utf-8")
    assert any("would import a module" in note for note in made.notes)
    with opened(browser, made.path) as page:
        page.locator("#last").click()
        page.wait_for_timeout(300)
        assert page.title() == page.locator("#title").text_content() == evil
        assert page.locator("img").count() == 0
        assert evil in page.locator("#facts dl").text_content()


def test_the_policy_stops_a_script_that_got_in(browser, triggers, tmp_path):
    broken = tmp_path / "broken.html"
    intruder = "</main><script>document.title = 'owned'</script><img src='http://127.0.0.1:9/x'>"
    broken.write_text(triggers[0].read_text(encoding="utf-8").replace("</main>", intruder), encoding="utf-8")
    context = browser.new_context()
    page, failed = context.new_page(), []
    page.on("requestfailed", lambda request: failed.append(request.failure))
    page.goto(broken.resolve().as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.title() != "owned" and all(why == "csp" for why in failed)
    with pytest.raises(Exception, match="Trusted"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    context.close()


def test_frames_of_any_environment_that_renders(browser, tmp_path):
    data = srl.collect("FrozenLake-v1", 20, seed=1, success_share=0.3)
    made = explore(fitted(data), data, tmp_path / "lake.html", trajectories=2, progress=False)
    assert not any("environment" in note for note in made.notes)
    with opened(browser, made.path) as page:
        episode = data[int(page.locator("#list [aria-selected=true]").get_attribute("data-episode"))]
        page.wait_for_timeout(300)
        frames = {}  # by where the elf is
        for count, place in enumerate([*episode.observations, episode.final_observation]):
            page.locator("#scrub").fill(str(count))
            frames.setdefault(int(place), set()).add(shot(page).tobytes())
    assert all(len(alike) == 1 for alike in frames.values()) and len(set.union(*frames.values())) == len(frames) > 2
