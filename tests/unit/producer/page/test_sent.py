"""A photo that is sent to the page's server: seen as LiteRT sees it, by another process; refused where it has to be."""

import asyncio
import base64
import http.client
import io
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import cv2
import numpy as np
import psutil
import pytest
from starlette.exceptions import HTTPException

from producer.page.sent.child import MOST_PHOTO_BYTES, Looker, StoredModel
from producer.page.sent.photo import Places
from producer.settings import ProducerSettings
from shared.errors import ImageError, PipelineError
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.page import served
from tests.unit.trainer.exported import LABELS, make_exported
from trainer.inference.detector import Detector

pytestmark = pytest.mark.timeout(300)

RUN = "tiny"
NO_MODEL = StoredModel(name="m", size_bytes=0, pieces=list)
# Orientation 6: to be turned clockwise (Exif 2.32, tag 274).
TURNED = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"


def noise(height: int, width: int) -> Any:
    """A smooth picture, BGR."""
    coarse = np.random.default_rng(0).integers(30, 220, (6, 8, 3)).astype(np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def png(height: int = 90, width: int = 120) -> bytes:
    return cv2.imencode(".png", noise(height, width))[1].tobytes()


@pytest.fixture(scope="module")
def model() -> bytes:
    return make_exported().forms["int8"]


@pytest.fixture(scope="module")
def store(model: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    storage = Storage(str(folder))
    storage.write(RunPaths(RUN).int8, model)
    storage.write(RunPaths("broken").int8, model[:2000])
    return folder


@contextmanager
def page_of(store: Path, **options: Any) -> Iterator[str]:
    with served(ProducerSettings(store=str(store), data_root=str(store)), **options) as page:
        yield page.url


@pytest.fixture(scope="module")
def site(store: Path) -> Iterator[str]:
    with page_of(store) as address:
        yield address


def post(address: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], str]:
    place = urlsplit(address)
    with closing(http.client.HTTPConnection(place.netloc, timeout=120)) as connection:
        connection.request("POST", place.path, body, {name.replace("_", "-"): each for name, each in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def post_form(address: str, photo: bytes, least: str = "") -> tuple[int, dict[str, str], str]:
    parts = [
        f'--edge\r\nContent-Disposition: form-data; name="least"\r\n\r\n{least}\r\n'.encode(),
        b'--edge\r\nContent-Disposition: form-data; name="photo"; filename="<b>.png"\r\n\r\n' + photo + b"\r\n",
        b"--edge--\r\n",
    ]
    return post(address, b"".join(parts), Content_Type="multipart/form-data; boundary=edge")


def test_the_server_sees_what_litert_sees(site: str, model: bytes) -> None:
    status, headers, body = post(f"{site}/runs/{RUN}/seen.json", png())
    told, detector = json.loads(body), Detector(model, is_ours=True)
    seen = detector.detect(noise(90, 120))
    assert (status, headers["cache-control"]) == (200, "no-store")
    assert (told["width"], told["height"], told["notes"]) == (120, 90, [])
    assert told["threshold"] == detector.description.threshold
    assert [one["class_id"] for one in told["seen"]] == seen.class_ids.tolist()
    assert [one["label"] for one in told["seen"]] == [LABELS[number - 1] for number in seen.class_ids]
    np.testing.assert_allclose([one["score"] for one in told["seen"]], seen.scores)
    np.testing.assert_allclose([one["box"] for one in told["seen"]], seen.boxes, atol=1e-3)


def test_a_photo_is_turned_as_its_exif_says(site: str) -> None:
    jpeg = cv2.imencode(".jpg", noise(90, 120))[1].tobytes()
    turned = jpeg[:2] + b"\xff\xe1" + (len(TURNED) + 2).to_bytes(2, "big") + TURNED + jpeg[2:]
    told = json.loads(post(f"{site}/runs/{RUN}/seen.json", turned)[2])
    assert (told["width"], told["height"]) == (90, 120)


def test_without_a_script_the_photo_comes_back_with_its_boxes(site: str) -> None:
    told = json.loads(post(f"{site}/runs/{RUN}/seen.json", png())[2])
    least = sorted(one["score"] for one in told["seen"])[-3]
    status, headers, text = post_form(f"{site}/runs/{RUN}/seen", png(), f"{least}")
    assert status == 200
    assert "img-src 'self' data:" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    kept = [one for one in told["seen"] if one["score"] >= least]
    boxes = [
        tuple(map(float, found))
        for found in re.findall(r'<rect .*? x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', text)
    ]
    corners = sorted((x, y, x + width, y + height) for x, y, width, height in boxes)
    np.testing.assert_allclose(corners, sorted(tuple(one["box"]) for one in kept), atol=1e-3)
    listed = [unescape(line) for line in re.findall("<li>(.*?)</li>", text)]
    assert listed == [f"{one['label']} {one['score']:.2f}" for one in kept]
    assert "has not kept it" in text
    assert "<b>" not in text


def test_the_answer_leads_back_to_its_job(site: str, store: Path) -> None:
    asked = RunSpec(job="cards", incarnation="cd" * 16, run=RUN)
    Storage(str(store)).write(RunPaths(RUN).request, asked.to_json().encode())
    assert '<a href="/jobs/cards">Job cards</a>' in post_form(f"{site}/runs/{RUN}/seen", png())[2]


def test_the_picture_in_the_answer_is_small_and_tells_nothing_of_where_it_was_taken(site: str) -> None:
    jpeg = cv2.imencode(".jpg", noise(1500, 3000))[1].tobytes()
    noted = jpeg[:2] + b"\xff\xe1" + (len(TURNED) + 10).to_bytes(2, "big") + TURNED + b"GPS here" + jpeg[2:]
    text = post_form(f"{site}/runs/{RUN}/seen", noted)[2]
    (content,) = re.findall(r'href="data:image/jpeg;base64,(.*?)"', text)
    shown = base64.b64decode(unescape(content))
    picture = cv2.imdecode(np.frombuffer(shown, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert picture.shape == (1280, 640, 3)
    assert b"GPS" not in shown
    assert 'viewBox="0 0 1500 3000"' in text


def test_a_least_score_that_is_none_is_the_models_own(site: str) -> None:
    threshold = json.loads(post(f"{site}/runs/{RUN}/seen.json", png())[2])["threshold"]
    for least in ("", "nan", "-1", "<b>", "2"):
        assert f"a score of at least {threshold:.2f}" in post_form(f"{site}/runs/{RUN}/seen", png(), least)[2]


def bomb() -> bytes:
    """A PNG whose header says 60,000 by 60,000 pixels."""
    small = png(4, 4)
    return small[:16] + (60_000).to_bytes(4, "big") * 2 + small[24:]


@pytest.mark.parametrize(
    ("photo", "said"),
    [
        (b"", "not an image this project reads: the file is empty"),
        (b"hello", "not an image this project reads"),
        (b"<svg onload=alert(1)>", "a text file (HTML or XML)"),
        (png()[:400], "the photo"),
        (bomb(), "60000x60000 pixels, at most 50000000 are decoded"),
        (b"\xff\xd8\xff" + bytes(100), ""),
    ],
    ids=["empty", "text", "svg", "cut", "bomb", "head"],
)
def test_what_is_no_photo_is_refused_in_one_line(site: str, photo: bytes, said: str) -> None:
    status, _, body = post(f"{site}/runs/{RUN}/seen.json", photo)
    error = json.loads(body)["error"]
    assert (status, "\n" in error) == (422, False)
    assert said in error
    assert "ended its process" not in error
    status, _, text = post_form(f"{site}/runs/{RUN}/seen", photo)
    assert status == (422 if photo else 400)
    assert "<svg" not in text


@pytest.mark.parametrize("run", ["absent", "broken", "UPPER", "..", "%2e%2e"])
def test_there_is_nothing_to_run_of_what_is_no_model(site: str, run: str) -> None:
    for path in ("seen.json", "seen"):
        assert post(f"{site}/runs/{run}/{path}", png())[0] in (400, 404, 422)


def test_a_photo_that_is_too_large_is_not_taken(site: str) -> None:
    status, _, body = post(f"{site}/runs/{RUN}/seen.json", b"", Content_Length=f"{MOST_PHOTO_BYTES * 2}")
    assert (status, "32 MB at most" in body) == (413, True)
    place = urlsplit(site)
    with closing(http.client.HTTPConnection(place.netloc, timeout=120)) as connection:
        chunks = (bytes(1 << 20) for _ in range(40))
        with suppress(BrokenPipeError):  # it was told while it was still sending
            connection.request("POST", f"/runs/{RUN}/seen.json", chunks, encode_chunked=True)
        assert connection.getresponse().status == 413


def test_a_form_without_a_photo_is_refused(site: str) -> None:
    status, _, text = post(f"{site}/runs/{RUN}/seen", b"a=b", Content_Type="application/x-www-form-urlencoded")
    assert (status, "no photo was chosen" in text) == (400, True)


def test_other_sites_and_whoever_lacks_the_token_may_not_send(site: str, store: Path) -> None:
    for path in ("seen", "seen.json"):
        assert post(f"{site}/runs/{RUN}/{path}", png(), Origin="http://evil.example")[0] == 403
        assert post(f"{site}/runs/{RUN}/{path}", png(), Sec_Fetch_Site="cross-site")[0] == 403
    with page_of(store, token="a-token") as address:
        assert post(f"{address}/runs/{RUN}/seen.json", png())[0] == 401
        assert post(f"{address}/runs/{RUN}/seen.json", png(), Cookie="voc2tflite_page=a-token")[0] == 200


def test_the_page_says_where_the_photo_goes_and_without_a_runtime_that_it_cannot(store: Path) -> None:
    missing = store / "no_node_modules"

    def tried(**options: Any) -> str:
        with page_of(store, **options) as address, urlopen(f"{address}/runs/{RUN}/try", timeout=60) as answer:
            return str(answer.read().decode())

    able, unable = tried(node_modules=missing), tried(node_modules=missing, looker=Looker(["ai_edge_nothing"]))
    assert "Your photo is sent to this server" in able
    assert f'action="/runs/{RUN}/seen"' in able
    assert "stays on this device" not in able + unable
    assert "ai_edge_nothing is not installed" in unable
    assert "<form" not in unable
    with page_of(store, looker=Looker(["ai_edge_nothing"])) as address:
        status, _, body = post(f"{address}/runs/{RUN}/seen.json", png())
        assert (status, json.loads(body)["error"]) == (
            422,
            "this server cannot look at photos: ai_edge_nothing is not installed",
        )


def look(program: str, what: str, most_s: float = 30) -> None:
    looker = Looker(most_s=most_s, program=program)
    asyncio.run(looker.look(NO_MODEL, io.BytesIO(what.encode()), with_picture=False))


DYING = "tests.unit.producer.page.dying"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("die", "ended its process by SIGSEGV"),
        ("leave", "ended its process with code 7"),
        ("nonsense", "ended its process with code 0"),
        ("infinite", "ended its process with code 0"),
        ("hang", "took more than 3 s"),
    ],
)
def test_what_kills_the_process_that_looks_is_one_refused_photo(what: str, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        look(DYING, what, most_s=3 if what == "hang" else 30)
    left = [each for each in psutil.Process().children(recursive=True) if DYING in each.cmdline()]
    assert left == []


def test_the_process_that_looks_is_handed_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOC_BROKER_PASSWORD", "secret")
    with pytest.raises(ImageError, match="PATH") as caught:
        look(DYING, "secrets")
    assert "VOC" not in str(caught.value)


def test_no_more_than_four_send_at_a_time() -> None:
    async def five() -> None:
        places = Places()
        async with places.one(), places.one(), places.one(), places.one():
            with pytest.raises(HTTPException) as caught:
                async with places.one():
                    pass
            assert caught.value.status_code == 429
        async with places.one():
            pass

    asyncio.run(five())


def test_what_cannot_look_says_what_it_lacks() -> None:
    assert Looker().missing() == ""
    with pytest.raises(PipelineError, match="a_library and another are not installed"):
        asyncio.run(Looker(["a_library", "another"]).look(NO_MODEL, io.BytesIO(), with_picture=False))
