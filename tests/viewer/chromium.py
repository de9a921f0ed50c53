"""Drives headless Chromium by its DevTools protocol, with the websockets that the viewer has.

A driver of a few dozen lines needs no browser of its own, no Node and no extra package: only
Debian's (or anybody's) Chromium.
"""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
FLAGS = (
    "--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--hide-scrollbars", "--remote-debugging-port=0", "--disable-dev-shm-usage",
    "--force-device-scale-factor=1", "--no-default-browser-check", "--mute-audio",
)  # fmt: skip


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, profile: Path, width: int = 1280, height: int = 800):
        program = executable()
        assert program is not None
        flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses to run as root otherwise
        self._process = subprocess.Popen(
            [program, *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._open = contextlib.ExitStack()
        port = self._wait_for_port(profile / "DevToolsActivePort")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=20) as answer:
            tab = next(t for t in json.load(answer) if t["type"] == "page")
        stream = connect(tab["webSocketDebuggerUrl"], max_size=2**26, proxy=None)
        self._socket = self._open.enter_context(stream)
        self._ids = itertools.count(1)
        self.errors: list[str] = []
        self.requested: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def _wait_for_port(self, file: Path) -> int:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if file.exists() and (lines := file.read_text().split()):
                return int(lines[0])
            assert self._process.poll() is None, "Chromium ended at once"
            time.sleep(0.1)
        raise TimeoutError("Chromium did not open its port")

    def call(self, method: str, **params):
        """Send a command and return its result; events on the way are looked at."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=120))
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._look(message)

    def _look(self, event):
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"])[:600])
        if event.get("method") == "Log.entryAdded":
            entry = event["params"]["entry"]
            if entry["level"] == "error":
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")
        if event.get("method") == "Network.requestWillBeSent":
            self.requested.append(event["params"]["request"]["url"])

    def resize(self, width: int, height: int):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def dark(self, on: bool):
        value = "dark" if on else "light"
        feature = {"name": "prefers-color-scheme", "value": value}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, url: str):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str):
        """Return the value of a JavaScript expression."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 60):
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.value(f"Boolean({expression})"):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{expression} after {seconds} s; errors: {self.errors}")

    def mouse(self, kind: str, x: float, y: float, buttons: int = 0):
        button = "left" if kind != "mouseMoved" else "none"
        self.call(
            "Input.dispatchMouseEvent",
            type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1,
        )  # fmt: skip

    def click(self, x: float, y: float):
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)

    def drag(self, places):
        first, *others = places
        self.mouse("mousePressed", *first, 1)
        for place in others:
            self.mouse("mouseMoved", *place, 1)
        self.mouse("mouseReleased", *places[-1])

    def press(self, selector: str):
        """Click an element."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click(*box)

    def key(self, key: str, code: str | None = None):
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **extra)

    def screenshot(self, path: Path, *, whole: bool = False):
        options = {"captureBeyondViewport": True} if whole else {}
        image = self.call("Page.captureScreenshot", format="png", **options)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(image))

    def close(self):
        self._open.close()
        self._process.terminate()
        self._process.wait(20)
