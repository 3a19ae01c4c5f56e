"""The page in a real Chromium: live, local, by keyboard, on a phone, and able to pin."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from jetspec_controller.api.app import create_app
from jetspec_controller.service import Service
from jetspec_controller.settings import load

from tests.support.fake_engine import FakeEngine
from tests.support.fake_sglang import FakeSGLang

webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

pytestmark = pytest.mark.integration

TOKEN = "0123456789abcdef"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHARTS = ("chart-time", "chart-speed", "chart-model", "chart-tau", "chart-cost")


class Served(threading.Thread):
    """A controller with two fake servers, ticking and serving in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.ready, self.done = threading.Event(), threading.Event()
        self.engines = [FakeEngine(running=1), FakeEngine(running=8)]
        self.url = ""

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        tokens = self.folder / "tokens"
        tokens.write_text(f"ops {TOKEN}\n")
        one, two = (FakeSGLang(engine) for engine in self.engines)
        async with one, two:
            wanted = {
                "targets": [{"url": one.url, "id": "quiet"}, {"url": two.url, "id": "busy"}],
                "policy": {"interval_s": 0.5, "dwell_s": 0.0, "publish_table": False},
                "api": {"token_file": tokens},
                "state": {"path": self.folder / "state.sqlite"},
                "audit": {"path": self.folder / "audit.jsonl"},
            }
            service = Service(load(None, wanted))
            await service.start()
            app = create_app(service)
            server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.05)
            host, port = server.servers[0].sockets[0].getsockname()[:2]
            self.url = f"http://{host}:{port}"
            self.ready.set()
            await asyncio.to_thread(self.done.wait)
            server.should_exit = True
            await serving
            await service.stop()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Served]:
    thread = Served(tmp_path_factory.mktemp("page"))
    thread.start()
    assert thread.ready.wait(60)
    yield thread
    thread.done.set()
    thread.join(30)


@pytest.fixture(scope="module")
def driver(chromium: str, tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_window_size(1280, 1700)
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver, page: Served):
    """The shared browser, with nothing left of an earlier test."""
    driver.get("about:blank")
    driver.execute_cdp_cmd(
        "Storage.clearDataForOrigin", {"origin": page.url, "storageTypes": "all"}
    )
    for log in ("browser", "performance"):
        driver.get_log(log)
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def wait(browser, condition, seconds: float = 30.0):
    return WebDriverWait(browser, seconds).until(lambda _: condition())


def text(browser, name: str) -> str:
    return browser.find_element(By.ID, name).text


def opened(browser, page: Served, fragment: str = "") -> None:
    browser.get(f"{page.url}/{fragment}")
    turns = "return Number(document.body.dataset.turns ?? 0)"
    wait(browser, lambda: browser.execute_script(turns) >= 3)


def requests(browser) -> set[str]:
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }


def test_live_and_local(browser, page: Served, tmp_path: Path) -> None:
    opened(browser, page)
    wait(browser, lambda: text(browser, "now-budget") == "64")
    assert text(browser, "status") == "2 of 2 servers readable"
    for chart in CHARTS:
        assert browser.find_elements(By.CSS_SELECTOR, f"#{chart} svg.main-svg"), chart
    rows = browser.find_elements(By.CSS_SELECTOR, "#decisions tr")
    assert len(rows) >= 3
    page.engines[0].running = 8
    wait(browser, lambda: text(browser, "now-budget") == "16")
    page.engines[0].running = 1
    browser.save_screenshot(str(tmp_path / "page.png"))
    sent = {url for url in requests(browser) if url.startswith(("http", "ws"))}
    assert f"{page.url}/page/plotly.js" in sent
    outside = {url for url in sent if not url.startswith(page.url)}
    assert not outside
    assert not browser.get_log("browser"), "no script error, nothing the policy had to block"


def test_another_server_by_keyboard(browser, page: Served) -> None:
    opened(browser, page)
    select = browser.find_element(By.ID, "target")
    select.send_keys("busy")
    wait(browser, lambda: text(browser, "now-running") == "8.0")
    assert browser.current_url.endswith("#busy")
    opened(browser, page, "#quiet")
    wait(browser, lambda: text(browser, "now-running") == "1.0")


def test_pin_by_keyboard_with_a_token(browser, page: Served) -> None:
    opened(browser, page, "#busy")
    assert not browser.find_element(By.ID, "pin").is_enabled()
    token = browser.find_element(By.ID, "token")
    token.send_keys("wrong" + Keys.TAB)
    Select(browser.find_element(By.ID, "pin-budget")).select_by_value("128")
    browser.find_element(By.ID, "pin-reason").send_keys("a test" + Keys.ENTER)
    wait(browser, lambda: "token" in text(browser, "answer"))
    token.clear()
    token.send_keys(TOKEN + Keys.TAB)
    reached = [browser.switch_to.active_element.get_attribute("id")]
    for _ in range(5):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.switch_to.active_element.get_attribute("id"))
    assert reached == ["pin-budget", "pin-minutes", "pin-reason", "pin", "unpin", "pause"]
    browser.find_element(By.ID, "pin").send_keys(Keys.ENTER)
    wait(browser, lambda: text(browser, "now-mode") == "pinned to 128")
    wait(browser, lambda: page.engines[1].budget == 128)
    browser.find_element(By.ID, "unpin").send_keys(Keys.ENTER)
    wait(browser, lambda: page.engines[1].budget == 16)
    browser.find_element(By.ID, "pause").send_keys(Keys.ENTER)
    wait(browser, lambda: "paused" in text(browser, "status"))
    wait(browser, lambda: text(browser, "pause") == "Resume all servers")
    browser.find_element(By.ID, "pause").send_keys(Keys.ENTER)
    wait(browser, lambda: "paused" not in text(browser, "status"))


def test_readable_on_a_phone(browser, page: Served, tmp_path: Path) -> None:
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    opened(browser, page)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 360, "nothing to scroll sideways for"
    small = browser.execute_script(
        "return [...document.querySelectorAll('button, input, select')]"
        ".filter(e => e.getBoundingClientRect().height < 40).map(e => e.id)"
    )
    assert small == [], "large enough for a finger"
    browser.save_screenshot(str(tmp_path / "phone.png"))


def test_controller_that_goes_away_is_said(browser, page: Served) -> None:
    opened(browser, page)
    browser.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    wait(browser, lambda: "cannot be read" in text(browser, "status"))
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
    wait(browser, lambda: "servers readable" in text(browser, "status"))
