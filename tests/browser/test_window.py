"""`predict --show` on a desktop without a screen (Xvfb), its keys pressed by xdotool."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import pytest

from tests.cluster import wait_until
from tests.unit.trainer.exported import make_exported

pytestmark = pytest.mark.browser


@pytest.fixture
def desktop() -> Iterator[str]:
    """The name of a display of this test's own."""
    if shutil.which("Xvfb") is None or shutil.which("xdotool") is None:
        pytest.skip("no Xvfb or no xdotool")
    pytest.importorskip("tkinter")
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1024x768x24"]
    server = subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with open(reading) as told:
        number = told.readline().strip()
    yield f":{number}"
    server.kill()
    server.wait()


def test_a_key_shows_the_next_picture_and_q_closes_the_window(desktop: str, tmp_path: Path) -> None:
    exported = make_exported()
    model = tmp_path / "model_int8.tflite"
    model.write_bytes(exported.forms["int8"])
    for name, picture in zip(("first.png", "second.png", "third.png"), exported.pictures, strict=False):
        cv2.imwrite(str(tmp_path / name), picture.rgb[..., ::-1])
    environment = {**os.environ, "DISPLAY": desktop}

    def windows(title: str) -> list[str]:
        command = ["xdotool", "search", "--name", title]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.split()

    def press(key: str, title: str) -> None:
        [window] = windows(title)
        subprocess.run(["xdotool", "windowfocus", window, "key", key], env=environment, check=True)

    seeing = subprocess.Popen(
        [sys.executable, "-m", "trainer", "predict", str(model), str(tmp_path), "--show"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: windows("first.png"), 60, "the first picture is shown")
        press("space", "first.png")
        wait_until(lambda: windows("second.png"), 30, "a key has shown the second one")
        press("q", "second.png")
        said, complained = seeing.communicate(timeout=30)
    finally:
        seeing.kill()
    assert seeing.returncode == 0, complained
    assert [line.partition(":")[0] for line in said.splitlines()] == ["first.png", "second.png"]
    assert not windows("second.png")
