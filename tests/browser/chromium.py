"""A page in a real Chromium, driven over its own pipe protocol: what it asked of the network, its width, a picture.

No driver package: the DevTools protocol is JSON, one message ended by a zero byte, on descriptors 3 and 4
(`--remote-debugging-pipe`; https://chromedevtools.github.io/devtools-protocol/).
"""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Of a page that never loads, or a script that never ends.
MOST_SILENCE_S = 90
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium() -> str | None:
    """`VOC_CHROMIUM`, or the first on PATH."""
    return os.environ.get("VOC_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(slots=True)
class Page:
    """One open page; `asked` are the addresses it requested, `complaints` what its console and its scripts said."""

    to_browser: int
    from_browser: int
    session: str = ""
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    is_loaded: bool = False
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    rest: bytes = b""

    def call(self, method: str, **params: Any) -> Any:
        """One command; its result."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path: Path, width_px: int) -> None:
        """Load a file in a window of that width, and wait until it is drawn."""
        self.visit(path.resolve().as_uri(), width_px)
        # Pictures in the page are decoded when they are shown.
        self.evaluate("Promise.all([...document.images].map(image => image.decode()))")

    def visit(self, address: str, width_px: int = 1280) -> None:
        """Load an address in a window of that width, and wait until all that it asks for is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width_px, height=900, deviceScaleFactor=1, mobile=width_px < 700
        )
        self.is_loaded = False
        self.call("Page.navigate", url=address)
        self.wait_for_load()

    def wait_for_load(self) -> None:
        """Wait until the next page is there; `is_loaded` was set to False before what leads to it."""
        while not self.is_loaded:
            self._note(self._receive())

    def prefer(self, scheme: str) -> None:
        """Say that the reader prefers `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """The value of a script in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> Any:
        """The value of a script in the page as soon as it is true of anything."""
        return self.evaluate(
            f"""new Promise((done, never) => {{
              const end = Date.now() + {seconds * 1000};
              const look = () => {{
                const found = {condition};
                if (found) done(found);
                else if (Date.now() > end) never(new Error(`it never came: ${{document.body.innerText}}`));
                else setTimeout(look, 20);
              }};
              look();
            }})"""
        )

    def press(self, key: str) -> None:
        """Press and release a key, named as in `KeyboardEvent.key`."""
        named = {"Enter": 13, "Tab": 9, " ": 32, "ArrowLeft": 37, "ArrowRight": 39}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = named.get(key, ord(key.upper()) if len(key) == 1 else 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code)

    def leave_by_key(self, key: str) -> None:
        """Press a key that leads to another page, and wait until that is there."""
        self.is_loaded = False
        self.press(key)
        self.wait_for_load()

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file where the page asks for one."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path: Path) -> None:
        """The whole page, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self.is_loaded = True
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(params)[:300])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            if not select.select([self.from_browser], [], [], MOST_SILENCE_S)[0]:
                raise RuntimeError(f"the browser has said nothing for {MOST_SILENCE_S} s; before: {self.complaints}")
            received = os.read(self.from_browser, 1 << 20)
            if not received:
                raise RuntimeError("the browser has gone")
            self.rest += received
        message, self.rest = self.rest.split(b"\0", 1)
        event: dict[str, Any] = json.loads(message)
        return event


@contextlib.contextmanager
def chromium(executable: str, profile: Path, *more_options: str) -> Iterator[Page]:
    """A browser with one page."""
    commands, answers = os.pipe(), os.pipe()
    for descriptor in (commands[0], answers[1]):
        os.set_inheritable(descriptor, True)
    # The shell puts our descriptors where the browser looks for them; `sh` may know descriptors up to 9 only.
    launch = f'exec "$0" "$@" 3<&{commands[0]} 4>&{answers[1]}'
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    options += ["--remote-debugging-pipe", f"--user-data-dir={profile}", *more_options, "about:blank"]
    browser = subprocess.Popen(
        ["bash", "-c", launch, executable, *options],
        pass_fds=(commands[0], answers[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        page = Page(commands[1], answers[0])
        targets = _page_targets(page)
        page.session = page.call("Target.attachToTarget", targetId=targets, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        browser.terminate()
        browser.wait(20)
        os.close(commands[1])
        os.close(answers[0])


def _page_targets(page: Page) -> str:
    """The id of the first page; it appears some moments after the browser."""
    for _ in range(100):
        found = [row for row in page.call("Target.getTargets")["targetInfos"] if row["type"] == "page"]
        if found:
            return str(found[0]["targetId"])
        time.sleep(0.1)
    raise RuntimeError("the browser opened no page")
