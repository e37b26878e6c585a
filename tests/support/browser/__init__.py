"""A real browser without a window: Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--remote-debugging-port=0", "--window-size=1400,900", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_CODES = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    **{f"Arrow{way}": 37 + at for at, way in enumerate(("Left", "Up", "Right", "Down"))},
}
# Of a machine that does a lot besides.
_PATIENCE_S = 60


class Browser:
    """One tab.

    Args:
        folder: For what the browser writes.
    """

    def __init__(self, folder: Path) -> None:
        websocket = pytest.importorskip("websocket", reason="pip install websocket-client")
        if PROGRAM is None:
            pytest.skip("there is no Chromium here; Debian's package is chromium")
        self.process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stderr=subprocess.DEVNULL,
        )
        try:
            self._socket = websocket.create_connection(
                _address(folder), suppress_origin=True, timeout=_PATIENCE_S
            )
        except BaseException:
            self.process.kill()
            raise
        self.events: list[dict[str, Any]] = []
        self._count = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._socket.close()
        self.process.kill()
        self.process.wait(_PATIENCE_S)

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, file: Path, dark: bool = False) -> float:
        """Open a page; gives the milliseconds until it can be used."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=file.as_uri())
        self.until("document.documentElement?.dataset.ready")
        return float(self.evaluate("document.documentElement?.dataset.ready"))

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def until(self, code: str) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + _PATIENCE_S
        while not self.evaluate(code):
            assert time.monotonic() < end, code
            time.sleep(0.02)

    def click(self, selector: str, **where: float) -> None:
        """Click into the middle of an element, as the mouse does, or so far from its corner."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.scrollIntoView({{block: 'nearest'}})")
        x, y, w, h = self.box(selector)
        at = {"x": x + where.get("x", w / 2), "y": y + where.get("y", h / 2)}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self.call("Input.dispatchMouseEvent", type=kind, button=button, clickCount=1, **at)

    def box(self, selector: str) -> list[float]:
        """Left, top, width and height of an element on the screen."""
        found = json.dumps(selector)
        return self.evaluate(
            f"(r => [r.x, r.y, r.width, r.height])"
            f"(document.querySelector({found}).getBoundingClientRect())"
        )

    def press(self, *keys: str) -> None:
        """Press keys, one after the other: letters, or names such as `ArrowDown`."""
        for key in keys:
            named = {"key": key, "windowsVirtualKeyCode": _CODES.get(key, 0)}
            text = {"text": key} if len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that a selector finds."""
        return self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
        )

    def problems(self) -> list[dict[str, Any]]:
        """Exceptions, and whatever was written to the console."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        kind = "Network.requestWillBeSent"
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == kind]


def _address(folder: Path) -> str:
    """Where the browser's tab listens, as soon as it does."""
    file, end = folder / "DevToolsActivePort", time.monotonic() + _PATIENCE_S
    while not (file.exists() and file.read_text().count("\n")):
        assert time.monotonic() < end, "the browser did not start"
        time.sleep(0.05)
    port = file.read_text().splitlines()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=_PATIENCE_S) as answer:
        (tab, *_) = [tab for tab in json.load(answer) if tab["type"] == "page"]
    return str(tab["webSocketDebuggerUrl"])
