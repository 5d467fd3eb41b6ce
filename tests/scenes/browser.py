"""A headless Chromium for tests, spoken to through two pipes in its own protocol (Chrome DevTools); nothing to install.

Messages are JSON objects that end in a zero byte.
"""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
TIMEOUT = 600.0


def find() -> str | None:
    """Path of a Chromium on this machine, or None; DAPPLE_CHROMIUM names another one."""
    given = os.environ.get("DAPPLE_CHROMIUM")
    return given or next((path for path in map(shutil.which, NAMES) if path), None)


@contextlib.contextmanager
def started(executable: str) -> Iterator["Browser"]:
    """A browser with a profile of its own, gone at the end."""
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads descriptor 3 and writes descriptor 4, whatever their numbers are here.
        script = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        process = subprocess.Popen(
            ["bash", "-c", script, executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        try:
            yield Browser(from_parent, to_parent)
        finally:
            os.close(from_parent)
            os.close(to_parent)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Browser:
    """Commands and events of a browser with one page.

    Attributes:
      events: everything the page reported, in order, as (method, parameters).
    """

    def __init__(self, write: int, read: int):
        self._write, self._read, self._buffer, self._last = write, read, b"", 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        """The next message; events are kept."""
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser must answer, got silence or its end.")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message

    def wait_for(self, method: str) -> None:
        """Waits until an event that is not among `events` yet arrives."""
        while self._receive().get("method") != method:
            pass

    def emulate(
        self, width: int, height: int = 900, *, dark: bool = False, mobile: bool = False, scale: float = 1.0
    ) -> None:
        """Sets the window, how many pixels of the screen each of its own takes, and the reader's color scheme."""
        window = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **window)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])

    def open(self, path: pathlib.Path) -> None:
        """Loads a file and waits until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        if not any(method == "Page.loadEventFired" for method, _ in self.events):
            self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path: pathlib.Path, clip: tuple[float, float] | None = None) -> None:
        """The whole page as a PNG file, or so much of its head: width and height."""
        part = {} if clip is None else {"clip": {"x": 0, "y": 0, "width": clip[0], "height": clip[1], "scale": 1}}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **part)
        path.write_bytes(base64.b64decode(answer["data"]))
