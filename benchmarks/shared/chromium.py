"""A headless Chromium, driven over its DevTools protocol through two pipes: no driver and no port."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = f"no Chromium: none of {', '.join(NAMES)} is on the PATH; on Debian, apt-get install chromium"
SECONDS = 60.0  # to wait for the browser

_START = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "Home": 36, "End": 35,
        "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip


class BrowserError(Exception):
    """An error that the browser reports, or no answer in time."""


class Browser:
    """A browser with one tab. ``requests`` has all requests, ``said`` the console's messages and exceptions."""

    def __init__(self, process: subprocess.Popen[bytes], reading: int, writing: int) -> None:
        self._process, self._reading, self._writing = process, reading, writing
        self._numbers, self._buffer, self._session = itertools.count(1), b"", ""
        self.requests: list[str] = []
        self.said: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result. Raises BrowserError."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            told = self._next(end)
            if told.get("id") != number:
                self._note(told)
            elif "error" in told:
                raise BrowserError(f"{method}: {told['error']}")
            else:
                found: dict[str, Any] = told["result"]
                return found

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._reading], [], [], max(0.0, end - time.monotonic()))[0]:
                raise BrowserError(f"no answer in {SECONDS:g} s")
            data = os.read(self._reading, 1 << 20)
            if not data:
                raise BrowserError(f"the browser ended with {self._process.wait()}")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(text)
        return told

    def _note(self, told: dict[str, Any]) -> None:
        about = told.get("params", {})
        match told.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Runtime.consoleAPICalled":
                self.said.append(f"console.{about['type']}: {[item.get('value') for item in about['args']]}")
            case "Runtime.exceptionThrown":
                self.said.append(f"exception: {about['exceptionDetails']}")
            case "Log.entryAdded":
                self.said.append(f"{about['entry']['level']}: {about['entry']['text']}")
            case "Page.loadEventFired":
                self._loaded = True

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file, and wait until it is loaded. Empty ``requests`` and ``said`` first."""
        self.call("Page.navigate", url="about:blank")  # else a URL that differs only in its fragment loads nothing
        self.until(lambda: bool(self.run("location.href === 'about:blank' && document.readyState === 'complete'")))
        self._loaded = False
        self.requests.clear()
        self.said.clear()
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.until(lambda: self._loaded and self.run("document.readyState") == "complete")

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds`` returns True. Raises BrowserError if it does not within ``SECONDS``."""
        end = time.monotonic() + SECONDS
        while not holds():
            if time.monotonic() > end:
                raise BrowserError(f"did not happen in {SECONDS:g} s; said: {self.said}")
            time.sleep(0.02)
            self.run("0")

    def run(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression in the page. Raises BrowserError if it throws."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise BrowserError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key: a name of :data:`KEYS`, or a character."""
        known: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
        if key == "Enter":
            known["text"] = "\r"
        elif key not in KEYS:
            known["text"] = key
        self.call("Input.dispatchKeyEvent", type="keyDown", **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        for character in text:
            self.press(character)

    def screen(self, width: int, height: int = 900, dark: bool = False, scale: float = 1.0) -> None:
        """Set the page's size in CSS pixels, the device pixels of a CSS pixel, and the colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path, height: float = 1e9, selector: str = "body") -> None:
        """Write the part of the page beside an element to a PNG, from its top, at most ``height`` CSS pixels."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        top, tall = self.run(
            f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect();"
            " return [box.top + scrollY, box.height]; })()"
        )
        clip = {"x": 0, "y": top, "width": size["width"], "height": min(tall, height), "scale": 1}
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(told["data"]))

    def pdf(self, path: Path) -> None:
        """Print the page to a PDF of A4."""
        told = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        path.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser that keeps its files in ``folder``, and end it. Raises FileNotFoundError if there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise FileNotFoundError(MISSING)
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    flags = [
        "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
        f"--user-data-dir={folder}", "about:blank",
    ]  # fmt: skip
    command = [sys.executable, "-c", _START, str(in_read), str(out_write), program, *flags]
    process = subprocess.Popen(
        command, pass_fds=(in_read, out_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(in_read)
    os.close(out_write)
    try:
        yield Browser(process, out_read, in_write)
    finally:
        os.close(in_write)  # the browser ends when its pipe is closed
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(out_read)
