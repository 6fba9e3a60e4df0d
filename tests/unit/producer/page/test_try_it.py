"""What the browser gets to run a run's model: the model, what to know of it, LiteRT.js; what is said without them."""

import hashlib
import html
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from producer.page.parts import PARTS
from shared.colours import PALETTE, as_css
from shared.jobs.paths import RunPaths
from shared.model.description import ModelDescription, description_archive
from shared.model.file import MOST_MODEL_BYTES
from shared.storage import Storage
from tests.browser.served import served

RUN = "mine"
# The page reads what is zipped to the end, the identifier and an operator's name; what is between is LiteRT's.
HEAD = b"\x1c\0\0\0TFL3" + bytes(100) + b"TFLite_Detection_PostProcess" + bytes(100)


def model(best_score: float | None = 0.37) -> bytes:
    description = ModelDescription(
        name=RUN,
        version="1",
        licence="Apache-2.0",
        labels=("Ähre", "<script>"),
        image_size=320,
        resize="letterbox",
        data_digest="ab",
        form="int8",
        best_score=best_score,
    )
    return HEAD + description_archive(len(HEAD), description)


def fetch(address: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    place = urlsplit(address)
    with closing(http.client.HTTPConnection(place.netloc, timeout=60)) as connection:
        connection.request("GET", place._replace(scheme="", netloc="").geturl(), headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A `node_modules` with the files that are served, their content their own paths."""
    folder = tmp_path / "node_modules"
    for path in PARTS.values():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    index = folder / PARTS["litert/index.js"]
    index.write_text('import { createWasmLib } from "@litertjs/wasm-utils";\n')
    (folder / "@litertjs/core/package.json").write_text("{}")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    storage = Storage(str(tmp_path / "store"))
    storage.make_root()
    storage.write(RunPaths(RUN).int8, model())
    return storage


@pytest.fixture
def site(store: Storage, packages: Path) -> Iterator[str]:
    with served(Path(store.root), node_modules=packages) as address:
        yield address


def test_the_browser_is_told_what_predict_knows(site: str) -> None:
    status, headers, body = fetch(f"{site}/runs/{RUN}/model.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {
        "url": f"/runs/{RUN}/model_int8.tflite",
        "name": RUN,
        "labels": ["Ähre", "<script>"],
        "image_size": 320,
        "resize": "letterbox",
        "threshold": 0.37,
        "mean": 127.5,
        "std": 127.5,
        "colours": [as_css(colour) for colour in PALETTE],
    }


def test_the_model_arrives_byte_for_byte(site: str) -> None:
    status, headers, body = fetch(f"{site}/runs/{RUN}/model_int8.tflite")
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert hashlib.sha256(body).digest() == hashlib.sha256(model()).digest()


def test_a_model_without_a_threshold_has_the_usual_one(site: str, store: Storage) -> None:
    store.write(RunPaths(RUN).int8, model(best_score=None))
    assert json.loads(fetch(f"{site}/runs/{RUN}/model.json")[2])["threshold"] == 0.4


def test_the_page_may_compile_wasm_and_is_isolated_and_others_are_not(site: str) -> None:
    status, headers, body = fetch(f"{site}/runs/{RUN}/try")
    assert status == 200
    assert "script-src 'self' 'wasm-unsafe-eval';" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert b"Your photo stays on this device." in body
    assert b"<script>" not in body
    assert "wasm" not in fetch(f"{site}/")[1]["content-security-policy"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no TFLite file"),
        (b"PK\3\4", "a zip"),
        (HEAD, "no voc2tflite description in it"),
        (HEAD + b"PK\5\6" + bytes(18), "no voc2tflite description in it"),
    ],
)
def test_what_is_no_model_says_so(site: str, store: Storage, content: bytes, said: str) -> None:
    store.write(RunPaths(RUN).int8, content)
    status, _, body = fetch(f"{site}/runs/{RUN}/model.json")
    assert status == 404
    error = json.loads(body)["error"]
    assert said in error
    assert "model_int8.tflite: " in error


@pytest.mark.parametrize("page", ["try", "model.json", "model_int8.tflite"])
def test_a_run_whose_model_ends_before_nms_names_the_command_that_makes_one_to_try(
    site: str, store: Storage, page: str
) -> None:
    store.write(RunPaths("ends-early").raw_int8, model())
    status, _, body = fetch(f"{site}/runs/ends-early/{page}")
    assert status == 404
    said = html.unescape(body.decode())
    assert "export ends-early" in said
    assert "--nms both" in said
    assert "was exported with --nms outside" in said


def test_a_file_larger_than_a_model_may_be_is_not_read(site: str, store: Storage) -> None:
    with store.local_path(RunPaths(RUN).int8).open("wb") as file:
        file.truncate(MOST_MODEL_BYTES * 40)  # sparse: it takes no room
    status, _, body = fetch(f"{site}/runs/{RUN}/model.json")
    assert status == 404
    assert "expected at most" in json.loads(body)["error"]
    assert fetch(f"{site}/runs/{RUN}/model_int8.tflite")[0] in (400, 404)


@pytest.mark.parametrize("run", ["nobody", "..", "%2e%2e%2fjobs", "MINE", "%00", "a" * 65])
def test_there_is_no_model_of_what_is_no_run(site: str, run: str) -> None:
    for page in ("try", "model.json", "model_int8.tflite", "try.svg"):
        assert fetch(f"{site}/runs/{run}/{page}")[0] == 404, page


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("litert/index.js", "text/javascript; charset=utf-8"),
        ("litert/wasm/litert_wasm_threaded_internal.wasm", "application/wasm"),
    ],
)
def test_parts_come_with_their_type_and_once(site: str, name: str, kind: str) -> None:
    status, headers, body = fetch(f"{site}/parts/{name}")
    assert (status, headers["content-type"]) == (200, kind)
    assert body
    status, _, again = fetch(f"{site}/parts/{name}", **{"If-None-Match": headers["etag"]})
    assert (status, again) == (304, b"")


def test_the_import_that_only_a_bundler_finds_is_an_address(site: str) -> None:
    assert fetch(f"{site}/parts/litert/index.js")[2] == b'import { createWasmLib } from "./wasm-utils.js";\n'
    assert fetch(f"{site}/parts/litert/wasm-utils.js")[0] == 200


@pytest.mark.parametrize(
    "name",
    ["@litertjs/core/package.json", "litert/../../package.json", "litert/%2e%2e/package.json", "", "litert/x.js"],
)
def test_nothing_else_of_a_package_is_served(site: str, name: str) -> None:
    assert fetch(f"{site}/parts/{name}")[0] == 404


def test_without_the_parts_the_page_says_what_is_missing(store: Storage, tmp_path: Path) -> None:
    with served(Path(store.root), node_modules=tmp_path / "nothing") as site:
        status, _, body = fetch(f"{site}/runs/{RUN}/try")
        page = body.decode()
        assert status == 200
        assert "LiteRT.js, which runs the model in the browser, is missing here: `make page` fetches it by npm" in page
        assert f"predict {store.url(RunPaths(RUN).int8)} PHOTO" in page
        assert "try.js" not in page
        status, _, body = fetch(f"{site}/parts/litert/index.js")
        assert status == 404
        assert "<code>make page</code> fetches it" in body.decode()


def test_one_missing_file_is_missing_parts(store: Storage, packages: Path) -> None:
    (packages / PARTS["litert/wasm/litert_wasm_compat_internal.wasm"]).unlink()
    with served(Path(store.root), node_modules=packages) as site:
        assert "is missing here" in fetch(f"{site}/runs/{RUN}/try")[2].decode()


@pytest.mark.parametrize(
    ("asked", "least"),
    [("?least=0.21", "0.21"), ("?least=1.00", "1.00"), ("?least=%3Cb%3E", ""), ("?least=9", ""), ("", "")],
)
def test_the_page_begins_with_the_threshold_that_the_address_names(
    site: str, store: Storage, tmp_path: Path, asked: str, least: str
) -> None:
    page = fetch(f"{site}/runs/{RUN}/try{asked}")[2].decode()
    assert (f' data-least="{least}"' in page, "data-least" in page) == (bool(least),) * 2
    assert f'step="0.01" value="{least}"' in page, "the form without a script"
    with served(Path(store.root), node_modules=tmp_path / "none") as bare:
        command = fetch(f"{bare}/runs/{RUN}/try{asked}")[2].decode()
    assert (f"PHOTO --threshold {least}<" in command) == bool(least)
