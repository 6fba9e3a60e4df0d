"""A run's own model in a real Chromium, by LiteRT.js: what it sees is what LiteRT sees, and no photo goes anywhere.

`VOC_SCREENSHOTS` names a folder for pictures. Skipped where `make page` was not run.
"""

import base64
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from producer.page.parts import Parts
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.browser.chromium import Page, chromium
from tests.browser.served import served
from tests.unit.trainer.exported import make_exported
from trainer.inference.detector import Detector, fit
from trainer.pixels import Picture

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

RUN = "tiny"
# Larger, smaller, as large, in one side larger and in the other smaller than the model's square; halves and parts.
SIZES_PX = [(64, 64), (128, 128), (480, 640), (333, 100), (160, 96), (20, 31), (50, 300), (1, 1), (100, 64)]


def noise(height: int, width: int, seed: int = 0) -> Picture:
    """A smooth picture, BGR."""
    coarse = np.random.default_rng(seed).integers(30, 220, (6, 8, 3)).astype(np.uint8)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)


@pytest.fixture(scope="module")
def models() -> dict[str, bytes]:
    return make_exported().forms


@pytest.fixture(scope="module")
def site(models: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not Parts().has_litert():
        pytest.skip("no LiteRT.js: make page")
    store = tmp_path_factory.mktemp("store")
    for run, form in ((RUN, "int8"), ("floats", "float32")):
        Storage(str(store)).write(RunPaths(run).int8, models[form])
    Storage(str(store)).write(RunPaths("broken").int8, models["int8"][:2000])
    with served(store) as address:
        yield address


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the browser takes for its camera: one picture, again and again."""
    path = tmp_path_factory.mktemp("film") / "film.mjpeg"
    path.write_bytes(cv2.imencode(".jpg", noise(240, 320))[1].tobytes() * 5)
    return path


@pytest.fixture(scope="module")
def page(film: Path, chromium_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    camera = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    camera.append(f"--use-file-for-fake-video-capture={film}")
    with chromium(chromium_program, tmp_path_factory.mktemp("profile"), *camera) as page:
        yield page


def open_page(page: Page, site: str, run: str = RUN) -> None:
    page.asked.clear()
    page.visit(f"{site}/runs/{run}/try")
    page.wait("document.querySelector('[data-part=said]').textContent === 'Ready'")
    show_all(page)


def show_all(page: Page) -> None:
    """The slider at its least score."""
    page.evaluate(
        "(slider => { slider.value = 0; slider.dispatchEvent(new Event('input')); })"
        "(document.querySelector('[data-part=threshold]'))"
    )


def listed(page: Page) -> list[dict[str, Any]]:
    rows = page.evaluate("[...document.querySelectorAll('[data-part=list] li')].map(line => ({...line.dataset}))")
    return [
        {"label": row["label"], "score": float(row["score"]), "box": [float(part) for part in row["box"].split()]}
        for row in rows
    ]


def choose(page: Page, path: Path) -> list[dict[str, Any]]:
    page.choose_file("[data-part=file]", path)
    page.wait(f"document.querySelector('[data-part=said]').textContent.startsWith({json.dumps(path.name + ': ')})")
    return listed(page)


def assert_agrees(shown: list[dict[str, Any]], model: bytes, picture_bgr: Picture) -> None:
    """What the page lists is what LiteRT sees: scores within 0.01, boxes within 1 px."""
    detector = Detector(model, is_ours=True)
    seen = detector.detect(picture_bgr)
    kept = seen.scores >= 0.01
    assert len(shown) == kept.sum() > 3
    assert [one["label"] for one in shown] == [detector.labels[number - 1] for number in seen.class_ids[kept]]
    assert np.abs(np.array([one["score"] for one in shown]) - seen.scores[kept]).max() < 0.01
    assert np.abs(np.array([one["box"] for one in shown]) - seen.boxes[kept]).max() < 1


def fitted(page: Page, picture_bgr: Picture, size: int, resize: str) -> NDArray[np.uint8]:
    """What the page's own resize makes of a picture, RGB."""
    height, width = picture_bgr.shape[:2]
    rgba = cv2.cvtColor(picture_bgr, cv2.COLOR_BGR2RGBA)
    content = base64.b64encode(rgba.tobytes()).decode()
    made = page.evaluate(
        f"""import("/static/picture.js").then(({{fit}}) => {{
          const pixels = Uint8ClampedArray.from(atob("{content}"), letter => letter.charCodeAt(0));
          return Array.from(fit(new ImageData(pixels, {width}, {height}), {size}, "{resize}"));
        }})"""
    )
    return np.array(made, np.uint8).reshape(size, size, 3)


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_pictures_are_resized_as_the_shards_are(page: Page, site: str, resize: Any) -> None:
    open_page(page, site)
    for height, width in SIZES_PX:
        picture = np.random.default_rng(height).integers(0, 256, (height, width, 3)).astype(np.uint8)
        expected = fit(picture, 64, resize)[..., ::-1].astype(int)
        # Elsewhere OpenCV has other instructions, and may be one level off.
        most = 0 if platform.machine() == "x86_64" else 1
        assert np.abs(fitted(page, picture, 64, resize) - expected).max() <= most, (height, width)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (480, 640), (333, 100), (40, 30)])
def test_a_chosen_photo_is_seen_as_litert_sees_it(
    page: Page, site: str, models: dict[str, bytes], tmp_path: Path, height: int, width: int
) -> None:
    open_page(page, site)
    picture = noise(height, width)
    path = tmp_path / "photo.png"
    cv2.imwrite(str(path), picture)
    assert_agrees(choose(page, path), models["int8"], picture)


def test_a_float_model_is_fed_as_litert_feeds_it(
    page: Page, site: str, models: dict[str, bytes], tmp_path: Path
) -> None:
    open_page(page, site, "floats")
    cv2.imwrite(str(tmp_path / "photo.png"), noise(90, 120))
    assert_agrees(choose(page, tmp_path / "photo.png"), models["float32"], noise(90, 120))


def test_a_photo_that_was_taken_upright_is_seen_upright(
    page: Page, site: str, models: dict[str, bytes], tmp_path: Path
) -> None:
    open_page(page, site)
    upright = noise(120, 90)
    lying = cv2.imencode(".jpg", cv2.rotate(upright, cv2.ROTATE_90_COUNTERCLOCKWISE), [cv2.IMWRITE_JPEG_QUALITY, 100])
    content = lying[1].tobytes()
    # Orientation 6: to be turned clockwise (Exif 2.32, tag 274).
    tags = b"MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
    exif = b"Exif\x00\x00" + tags
    path = tmp_path / "turned.jpg"
    path.write_bytes(content[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + content[2:])
    shown = choose(page, path)
    assert "90 \u00d7 120 px" in page.evaluate("document.querySelector('[data-part=said]').textContent")
    decoded = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    assert_agrees(shown, models["int8"], np.asarray(decoded, np.uint8))


def test_no_request_leaves_the_machine_and_a_photo_makes_none(page: Page, site: str, tmp_path: Path) -> None:
    open_page(page, site)
    assert {address.split("/")[2] for address in page.asked if address.startswith("http")} == {site.split("/")[2]}
    page.asked.clear()
    cv2.imwrite(str(tmp_path / "photo.png"), noise(200, 300))
    assert choose(page, tmp_path / "photo.png")
    assert [address for address in page.asked if not address.startswith(("blob:", "data:"))] == []
    assert "stays on this device" in page.evaluate("document.body.innerText")


def test_the_slider_hides_and_shows_without_another_look(page: Page, site: str, tmp_path: Path) -> None:
    open_page(page, site)
    cv2.imwrite(str(tmp_path / "photo.png"), noise(200, 300))
    scores = [one["score"] for one in choose(page, tmp_path / "photo.png")]
    page.evaluate("document.querySelector('[data-part=threshold]').focus()")
    for _ in range(60):
        page.press("ArrowRight")
    least = float(page.evaluate("document.querySelector('[data-part=least]').textContent"))
    assert least > 0.5
    kept = [one["score"] for one in listed(page)]
    assert kept == [score for score in scores if score >= least]
    assert len(kept) < len(scores)


def test_the_slider_begins_where_the_address_says(page: Page, site: str) -> None:
    for asked in ("0.21", "0.30"):
        page.visit(f"{site}/runs/{RUN}/try?least={asked}")
        page.wait("document.querySelector('[data-part=said]').textContent === 'Ready'")
        assert page.evaluate("document.querySelector('[data-part=least]').textContent") == asked
        assert page.evaluate("document.querySelector('[data-part=threshold]').valueAsNumber") == float(asked)


def test_nothing_of_the_last_photo_stays_beside_a_file_that_cannot_be_shown(
    page: Page, site: str, tmp_path: Path
) -> None:
    open_page(page, site)
    cv2.imwrite(str(tmp_path / "photo.png"), noise(200, 300))
    (tmp_path / "none.png").write_bytes(b"no picture")
    assert choose(page, tmp_path / "photo.png")
    page.choose_file("[data-part=file]", tmp_path / "none.png")
    page.wait("document.querySelector('[data-part=said]').textContent.startsWith('This file cannot be shown: ')")
    assert listed(page) == []
    assert page.evaluate("document.querySelector('[data-part=picture]').hidden")


def test_on_a_phone_the_field_for_a_file_is_inside_its_frame(page: Page, site: str) -> None:
    page.visit(f"{site}/runs/{RUN}/try", 390)
    page.wait("document.querySelector('[data-part=said]').textContent === 'Ready'")
    page.evaluate("document.querySelector('details.send').open = true")
    over = """[...document.querySelectorAll('input, button')].filter(one => one.offsetWidth).filter(one => {
      const frame = (one.closest('fieldset') ?? document.querySelector('main')).getBoundingClientRect();
      return one.getBoundingClientRect().right > frame.right + 0.5;
    }).map(one => one.outerHTML)"""
    assert page.evaluate(over) == []


def test_the_camera_shows_boxes_and_frames_a_second(page: Page, site: str, models: dict[str, bytes]) -> None:
    open_page(page, site)
    page.evaluate("document.querySelector('[data-part=camera]').click()")
    page.wait("/^[0-9.]+ frames a second/.test(document.querySelector('[data-part=speed]').textContent)")
    assert page.wait("document.querySelectorAll('[data-part=list] li').length > 3")
    # Something is drawn: the canvas has the colour of a class where the camera's picture has none.
    assert page.evaluate("document.querySelector('[data-part=picture]').width") > 0
    assert page.evaluate("document.querySelector('[data-part=video]').srcObject.active")
    page.evaluate("document.querySelector('[data-part=stop]').click()")
    assert page.evaluate("document.querySelector('[data-part=video]').srcObject") is None
    assert page.evaluate("document.querySelector('[data-part=said]').textContent") == "Stopped"


def test_a_video_is_seen_frame_by_frame_to_its_end(page: Page, site: str, tmp_path: Path) -> None:
    open_page(page, site)
    path = tmp_path / "film.webm"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"VP80"), 10, (160, 120))
    for _ in range(12):
        writer.write(noise(120, 160))
    writer.release()
    page.choose_file("[data-part=file]", path)
    page.wait("/frames a second/.test(document.querySelector('[data-part=speed]').textContent)")
    page.wait("document.querySelectorAll('[data-part=list] li').length > 3")
    assert page.wait("document.querySelector('[data-part=said]').textContent === 'film.webm has ended'")


@pytest.fixture
def without_wasm(page: Page) -> Iterator[None]:
    """A browser that has no WebAssembly."""
    script = "Object.defineProperty(globalThis, 'WebAssembly', {value: undefined})"
    added = page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    yield
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


@pytest.mark.usefixtures("without_wasm")
@pytest.mark.parametrize(("height", "width"), [(480, 640), (4500, 4000)])
def test_where_wasm_cannot_run_the_server_looks_and_the_page_says_so_before(
    page: Page, site: str, models: dict[str, bytes], tmp_path: Path, height: int, width: int
) -> None:
    open_page(page, site)
    told = page.evaluate("document.querySelector('main').innerText")
    assert "Your photo is sent to this server" in told
    assert "stays on this device" not in told
    assert page.evaluate("document.querySelector('[data-part=camera]').hidden")
    cv2.imwrite(str(tmp_path / "photo.png"), noise(height, width))
    page.asked.clear()
    shown = choose(page, tmp_path / "photo.png")
    assert [address for address in page.asked if address.startswith("http")] == [f"{site}/runs/{RUN}/seen.json"]
    # A canvas holds 16 million pixels; boxes are those of what is shown.
    scale = page.evaluate("document.querySelector('[data-part=picture]').width") / width
    for one in shown:
        one["box"] = [corner / scale for corner in one["box"]]
    assert_agrees(shown, models["int8"], noise(height, width))


@pytest.mark.usefixtures("without_wasm")
def test_what_the_server_refuses_is_said(page: Page, site: str, tmp_path: Path) -> None:
    open_page(page, site)
    path = tmp_path / "film.webm"
    path.write_bytes(b"no film")
    page.choose_file("[data-part=file]", path)
    page.wait("/the server looks at photos only/.test(document.querySelector('[data-part=said]').textContent)")
    assert "photos only" in page.evaluate("document.querySelector('[data-part=said]').textContent")


def test_with_scripts_the_page_says_that_photos_stay_and_folds_the_form_away(page: Page, site: str) -> None:
    open_page(page, site)
    assert "Your photo stays on this device" in page.evaluate("document.body.innerText")
    assert page.evaluate("document.querySelector('form[enctype] button').checkVisibility()") is False
    assert page.evaluate("document.querySelector('[data-part=camera]').checkVisibility()") is True


def test_without_a_script_a_form_sends_the_photo_and_shows_its_boxes(
    page: Page, site: str, models: dict[str, bytes], tmp_path: Path
) -> None:
    cv2.imwrite(str(tmp_path / "photo.png"), noise(200, 300))
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.visit(f"{site}/runs/{RUN}/try")
        shown = page.evaluate("document.body.innerText")
        assert "Your photo is sent to this server" in shown
        assert "stays on this device" not in shown
        assert "is being loaded" not in shown
        assert page.evaluate("document.querySelector('[data-part=camera]').checkVisibility()") is False
        assert page.evaluate("document.querySelector('form[enctype] button').checkVisibility()") is True
        page.choose_file("input[name=photo]", tmp_path / "photo.png")
        page.evaluate("document.querySelector('form[enctype] button').focus()")
        page.leave_by_key("Enter")
        seen = Detector(models["int8"], is_ours=True)
        kept = (seen.detect(noise(200, 300)).scores >= seen.description.threshold).sum()
        assert page.evaluate("document.querySelectorAll('svg.sent rect').length") == kept > 0
        assert page.evaluate("document.querySelector('svg.sent image').getBoundingClientRect().width") > 200
        assert "has not kept it" in page.evaluate("document.body.innerText")
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_what_is_no_picture_and_a_model_that_is_broken_are_said(page: Page, site: str, tmp_path: Path) -> None:
    open_page(page, site)
    path = tmp_path / "notes.txt"
    path.write_text("no picture")
    page.choose_file("[data-part=file]", path)
    page.wait("document.querySelector('[data-part=said]').textContent.startsWith('This file cannot be shown: ')")
    page.visit(f"{site}/runs/broken/try")
    said = page.wait(
        "(text => text.startsWith('The model is being') ? '' : text)"
        "(document.querySelector('[data-part=said]').textContent)"
    )
    assert said.startswith("The model cannot run in this browser: ")
    assert "expected a .tflite" in said
    assert page.evaluate("document.querySelector('#try fieldset').disabled")
