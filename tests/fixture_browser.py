"""A headless browser, driven through a pipe: what a page does when a person opens it."""

import base64
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
_PATIENCE = 60.0  # seconds for an answer, on a machine that has other things to do
_QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions")


class Browser:
    """One tab, in which a file is opened; notes what it asks for and what it complains of.

    Attributes:
        complaints: errors and warnings of the console, and what a page threw.
        requests: every address that was asked for.
        shows: the address that is open, and how wide.
    """

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        silent = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        # The protocol is spoken on descriptors 3 and 4.
        self._process = os.posix_spawn(
            BROWSER,
            [BROWSER, *_QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            dict(os.environ, HOME=str(profile)),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs_in, 3),
                (os.POSIX_SPAWN_DUP2, theirs_out, 4),
                silent,
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setpgroup=0,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.shows = ("", 0)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page and wait until it is drawn, or says that it failed."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._loaded, self.shows = False, (page.as_uri(), width)
        self.call("Page.navigate", url=page.as_uri())
        while not self._loaded:
            self._note(self._next("Page.navigate"))
        self.wait("document.documentElement.dataset.state")

    def run(self, script: str) -> Any:
        """Return what a script in the page comes to."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """Return what a script comes to as soon as that is true."""
        until = time.monotonic() + _PATIENCE
        while not (found := self.run(script)):
            assert time.monotonic() < until, f"in vain: {script}; {self.complaints}"
            self.run("new Promise(requestAnimationFrame)")
        return found

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what is to be seen as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser, with all of its processes."""
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give an order in the browser's protocol, and return the answer."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._out, json.dumps(order).encode() + b"\0")
        while True:
            message = self._next(method)
            if message.get("id") == order["id"]:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._note(message)

    def _next(self, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE)
            assert ready, f"the browser does not answer {method}"
            part = os.read(self._in, 1 << 20)
            assert part, f"the browser is gone at {method}"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, message: Mapping[str, Any]) -> None:
        found = message.get("params", {})
        self._loaded |= message["method"] == "Page.loadEventFired"
        if message["method"] == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(str(found["exceptionDetails"]))
        elif message["method"] == "Runtime.consoleAPICalled" and found["type"] != "log":
            self.complaints.append(str(found["args"]))
        elif message["method"] == "Log.entryAdded" and found["entry"]["level"] != "verbose":
            self.complaints.append(str(found["entry"]))
