"""A real browser for the tests of the live page: Chromium without a window, driven through the pipe that it offers."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 60.0
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
_COMPLAINTS = (
    "Runtime.exceptionThrown",
    "Runtime.consoleAPICalled",
    "Log.entryAdded",
    "Page.javascriptDialogOpening",
)


class Page:
    """One page of the browser, with everything that it complained about in ``complaints``."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back, self._buffer = out, back, b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            if answer.get("method") in _COMPLAINTS:
                self.complaints.append(json.dumps(answer))
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            assert select.select([self._back], [], [], max(deadline - time.monotonic(), 0))[0], "the browser is silent"
            part = os.read(self._back, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def show(self, url: str, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open an address in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Return what an expression is on the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true on the page."""
        deadline = time.monotonic() + SECONDS
        while not self.value(f"document.readyState === 'complete' && Boolean({expression})"):
            assert time.monotonic() < deadline, f"{expression} never came true: {self.value('document.body.innerText')}"
            select.select([self._back], [], [], 0.05)

    def click(self, x: float, y: float) -> None:
        """Press the mouse at a point of the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save what the page looks like."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start Chromium with a profile of its own; yield an empty page."""
    here, theirs = os.pipe(), os.pipe()  # the browser reads from the first and writes to the second
    # It reads from number 3 and writes to number 4, which the shell arranges.
    script = f'exec "$0" "$@" 3<&{here[0]} 4>&{theirs[1]}'
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    options += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", script, CHROMIUM, *options],
        pass_fds=(here[0], theirs[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(here[0])
    os.close(theirs[1])
    try:
        page = Page(here[1], theirs[0])
        yield page
        page.call("Browser.close")
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(here[1])
        os.close(theirs[0])
