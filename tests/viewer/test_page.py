"""The page in a real browser: what a person does, and what they then see.

Screenshots are kept in build/screenshots. Without Chromium these tests are left out by name;
``.ci/run`` installs it.
"""

import time
from pathlib import Path

import chromium
import pytest
from served import TOKEN

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
IDLE = "document.body.dataset.ready === '1' && document.body.dataset.busy === '0'"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = chromium.Page(tmp_path_factory.mktemp("profile"))
    yield page
    page.close()


@pytest.fixture
def page(browser, maze):
    """The maze's page, opened anew in task 1 with the goal three cells away."""
    maze.ask("reset", task=1, seed=0)
    maze.ask("place", start=[0.0, 0.0])
    browser.errors.clear()
    browser.resize(1280, 800)
    browser.dark(False)
    browser.open(maze.base)
    browser.wait(f"{IDLE} && document.body.dataset.samples")
    yield browser
    assert browser.errors == []


def pixel(page, x, y):
    """Return where a place of the medium maze is on the screen, by its cells' corners."""
    box = page.value(
        "(() => { const b = document.getElementById('scene').getBoundingClientRect();"
        " return [b.x, b.y, b.width, b.height]; })()"
    )
    left, top, width, height = box
    zoom = min((width - 20) / 32, (height - 20) / 32)  # eight cells of four metres
    return left + width / 2 + zoom * (x - 10), top + height / 2 - zoom * (y - 10)


def text(page, selector):
    return page.value(f"document.querySelector('{selector}').innerText")


def settle(page):
    """Wait until the page has nothing more to ask."""
    time.sleep(0.15)
    page.wait(IDLE)
    time.sleep(0.1)


def test_a_click_sets_a_goal_and_the_page_says_why(page):
    page.click(*pixel(page, 4, 8))
    settle(page)
    assert "Following this chain is worth" in text(page, "#why")
    assert text(page, "#versus").count("\n") >= 4  # three bars with names and numbers
    assert page.value("document.querySelectorAll('.round').length") == 3
    assert page.value("document.querySelectorAll('.segment').length") == 5
    assert "ms" in text(page, "#status-text")
    page.screenshot(SHOTS / "goal.png")
    page.dark(True)
    settle(page)
    page.screenshot(SHOTS / "goal-dark.png")


def test_a_click_on_a_wall_is_explained(page):
    page.click(*pixel(page, -4, -4))
    settle(page)
    assert "wall" in text(page, "#notice")
    page.errors.clear()  # the browser's console names the refused request


def test_a_reward_is_painted_and_erased(page):
    page.press("[data-tool=paint]")
    page.drag([pixel(page, 4, 8), pixel(page, 8, 8)])
    page.press("[data-tool=avoid]")
    page.click(*pixel(page, 0, 4))
    settle(page)
    assert "reward" in text(page, "#step-count")
    assert "best cell" in text(page, "#why") or "No candidate" in text(page, "#why")
    page.screenshot(SHOTS / "painted.png")
    page.press("[data-tool=erase]")
    page.drag([pixel(page, 4, 8), pixel(page, 8, 8)])
    page.click(*pixel(page, 0, 4))
    settle(page)
    assert "reward" not in text(page, "#step-count")


def test_what_cannot_be_compiled_is_said_instead_of_waited_for(page, maze, monkeypatch):
    session = maze.engine.session("m0")
    monkeypatch.setattr(session, "compiled", session.compiled - {"painting"})
    monkeypatch.setattr(session, "failed", {"painting": "RuntimeError: no room"})
    page.open(maze.base)
    page.wait(f"{IDLE} && document.body.dataset.samples")
    page.press("[data-tool=paint]")
    page.click(*pixel(page, 4, 8))
    settle(page)
    assert text(page, "#notice") == "painting: cannot be compiled (RuntimeError: no room)"
    page.press("[data-tool=erase]")
    page.click(*pixel(page, 4, 8))
    settle(page)
    assert text(page, "#notice") == ""


def test_the_discount_slider_moves_the_samples(page):
    before = page.value("document.getElementById('horizon-out').textContent")
    page.value(
        "(() => { const s = document.getElementById('horizon'); s.value = 0.9;"
        " s.dispatchEvent(new Event('input')); })()"
    )
    settle(page)
    after = page.value("document.getElementById('horizon-out').textContent")
    assert before != after and "= 0.99" in after
    assert page.value("document.body.dataset.samples") == "32"


def test_the_keyboard_alone_is_enough(page):
    page.value("document.getElementById('scene').focus()")
    page.key("g")
    for _ in range(3):
        page.key("ArrowDown")
    page.key("Enter")
    settle(page)
    assert page.value("document.activeElement.id") == "scene"
    page.key("n")
    page.wait("document.body.dataset.step === '1'")
    page.key("3")
    settle(page)
    assert page.value("document.querySelector('[data-task=\"3\"]').ariaPressed") == "true"
    assert text(page, "#notice") == ""


def test_play_runs_to_the_goal_and_can_be_paused(page):
    page.click(*pixel(page, 4, 8))
    settle(page)
    page.press("#play")
    page.wait("Number(document.body.dataset.step) >= 5")
    page.press("#play")
    page.wait("document.body.dataset.playing === '0'")
    settle(page)
    stood = int(page.value("document.body.dataset.step"))
    assert text(page, "#play") == "Play" and stood < 150
    page.press("#play")
    page.wait("document.body.dataset.reached === '1'", 90)
    page.wait("document.body.dataset.playing === '0'")
    settle(page)
    assert "reached in" in text(page, "#step-count")
    page.screenshot(SHOTS / "reached.png")


def test_hints_explain_the_words(page):
    page.value("document.querySelectorAll('.hint')[2].focus()")
    assert "switches with probability" in text(page, "#tooltip")
    page.key("Escape")
    assert page.value("document.getElementById('tooltip').hidden")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (420, 900), (800, 600)])
def test_it_fits(page, width, height):
    page.resize(width, height)
    settle(page)
    assert page.value("document.documentElement.scrollWidth") <= width
    page.screenshot(SHOTS / f"{width}x{height}.png")


def test_nothing_is_fetched_from_elsewhere(page, maze):
    asked = [url for url in page.requested if not url.startswith(("blob:", "data:"))]
    assert asked and all(url.startswith(maze.base.split("#")[0]) for url in asked)


def test_cubes_from_above(browser, cubes):
    cubes.ask("reset", task=2, seed=0)
    browser.errors.clear()
    browser.resize(1280, 800)
    browser.open(cubes.base)
    browser.wait(f"{IDLE} && document.body.dataset.samples")
    assert browser.value("document.querySelector('[data-tool=start]').disabled")
    browser.press("#step")
    browser.wait("document.body.dataset.step === '1'")
    settle(browser)
    browser.screenshot(SHOTS / "cubes.png")
    assert browser.errors == []


def test_an_ant_from_above(browser, ants):
    ants.ask("reset", task=1, seed=0)
    ants.ask("goal", places=[[4.0, 8.0]])
    browser.errors.clear()
    browser.resize(1280, 800)
    browser.open(ants.base)
    browser.wait(f"{IDLE} && document.body.dataset.samples")
    assert "antmaze-medium" in text(browser, "body")
    assert browser.value("document.getElementById('proposal').value") == "bridge"
    assert not browser.value("document.querySelector('[data-tool=start]').disabled")
    browser.press("[data-tool=start]")
    browser.click(*pixel(browser, 0, 4))
    settle(browser)
    ((x, y),) = ants.ask("scene")["state"]["objects"]
    assert abs(x) < 0.2 and abs(y - 4) < 0.2  # the click became the place under it
    browser.press("#step")
    browser.wait("document.body.dataset.step === '1'")
    settle(browser)
    browser.screenshot(SHOTS / "ant.png")
    assert text(browser, "#notice") == "" and browser.errors == []


def choose(page, selector, value):
    """Choose an option, or move a slider."""
    page.value(
        f"(() => {{ const e = document.querySelector('{selector}'); e.value = '{value}';"
        " for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind)); })()"
    )
    settle(page)


def test_bridges_come_first_and_give_way_to_painting(browser, bridges):
    bridges.ask("reset", task=1, seed=0)
    bridges.ask("place", start=[0.0, 0.0])
    bridges.ask("goal", places=[[20.0, 12.0]])
    browser.errors.clear()
    browser.resize(1280, 800)
    browser.open(bridges.base)
    browser.wait(f"{IDLE} && document.body.dataset.samples")
    proposal = "document.getElementById('proposal')"
    segments = "document.querySelectorAll('.segment').length"
    assert browser.value(f"{proposal}.value") == "bridge" and browser.value(segments) == 7
    assert "Following this chain is worth" in text(browser, "#why")
    browser.screenshot(SHOTS / "bridges.png")

    browser.press("[data-tool=paint]")
    browser.click(*pixel(browser, 4, 8))
    settle(browser)
    assert browser.value(f"{proposal}.value") == "paper" and browser.value(segments) == 5
    assert browser.value(f"{proposal}.querySelector('[value=bridge]').disabled")
    assert "a painted reward has none" in text(browser, "#proposal-note")
    browser.screenshot(SHOTS / "bridges-painted.png")
    browser.press("[data-tool=erase]")
    browser.click(*pixel(browser, 4, 8))
    settle(browser)
    assert browser.value(f"{proposal}.value") == "bridge" and browser.value(segments) == 7
    assert text(browser, "#proposal-note") == ""

    choose(browser, "#proposal", "paper")
    assert browser.value(segments) == 5 and "Following" in text(browser, "#why")
    choose(browser, "#overall", 0.05)
    assert "Every value is zero" in text(browser, "#why")
    assert "What helps: bridges above" in text(browser, "#why")
    assert browser.value("document.querySelector('.why').classList.contains('nothing')")
    browser.screenshot(SHOTS / "every-value-zero.png")
    choose(browser, "#proposal", "bridge")  # whose sliders nobody touched
    assert "Following" in text(browser, "#why")
    browser.press("#step")
    browser.wait("document.body.dataset.step === '1'")
    settle(browser)
    assert text(browser, "#notice") == "" and browser.errors == []


def test_without_data_the_page_names_the_flag(page):
    offered = page.value("document.getElementById('proposal').innerText")
    assert "the paper's" in offered and "--precedents DATA" in offered
    assert page.value("document.getElementById('proposal').value") == "paper"


def test_the_token_reaches_the_page_through_the_printed_address(browser, guarded):
    browser.open(guarded.address)
    assert browser.value("sessionStorage.getItem('token')") == TOKEN
    asked = "import('/api.js').then((api) => api.status())"
    assert browser.value(asked)["models"] == []  # an answer, not a 401
