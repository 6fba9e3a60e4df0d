"""Profile `page`: published on this machine only, with a token, may only read, has its browser parts and LiteRT."""

import json
import re
from urllib.request import Request, urlopen

import cv2
import numpy as np
import pytest

from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.docker.stack import Stack, docker, wait_for
from tests.page import ServedPage
from tests.ports import claim_ports
from tests.unit.trainer.exported import make_exported
from trainer.inference.detector import Detector
from trainer.inference.sources import decode_picture

IMAGE = "voc2tflite-page:0.2.0"
LIMIT_MB = 600

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]


@pytest.fixture(scope="session")
def page_built(built: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The page's image, of the code as it is."""
    stack = Stack(name="voc-build", folder=tmp_path_factory.mktemp("build"))
    stack.compose("--profile", "page", "build", "page", timeout_s=1200)


@pytest.fixture
def looking(stack: Stack, page_built: None) -> tuple[Stack, ServedPage]:
    """A stack whose page is up, on a port that was free."""
    [port] = claim_ports(1)
    own = Stack(name=stack.name, folder=stack.folder, environment={**stack.environment, "VOC_PAGE_PORT": str(port)})
    own.up("page")
    return own, ServedPage(port)


def _open(stack: Stack, page: ServedPage) -> str:
    """Open the page by the address in its log; the cookie that it gives."""
    said = wait_for(
        lambda: re.search(r"open http://localhost:(\d+)(/\?token=\S+)", stack.compose("logs", "page")),
        within_s=60,
        what="the address in the log",
    )
    assert int(said[1]) == page.port
    opened = page.ask(said[2])
    assert opened.status == 303
    return opened.headers["set-cookie"].split(";")[0]


def test_the_page_is_opened_by_what_its_log_says_and_by_nothing_else(looking: tuple[Stack, ServedPage]) -> None:
    stack, page = looking
    cookie = _open(stack, page)
    assert page.ask("/").status == 401
    listed = page.ask("/", Cookie=cookie)
    assert (listed.status, "No jobs yet" in listed.text) == (200, True)
    published = stack.compose("port", "page", str(page.port)).strip()
    assert published == f"127.0.0.1:{page.port}"


def test_the_page_may_only_read_and_is_well(looking: tuple[Stack, ServedPage]) -> None:
    stack, _ = looking
    for path in ("/out/x", "/data/x", "/app/x"):
        tried = f"if touch {path} 2>/dev/null; then echo written; else echo refused; fi"
        assert stack.compose("exec", "-T", "page", "sh", "-c", tried).strip() == "refused", path
    assert stack.compose("exec", "-T", "page", "id", "-u").strip() != "0"
    assert stack.compose("exec", "-T", "page", "ls", "/run/voc").split() == ["broker_password"], "no other's password"
    container = stack.compose("ps", "-q", "page").strip()
    health = "{{.State.Health.Status}}"
    wait_for(lambda: docker("inspect", "-f", health, container).strip() == "healthy", within_s=90, what="healthy")


def test_the_image_has_the_browser_parts_and_no_npm(page_built: None) -> None:
    script = (
        "from producer.page.parts import Parts; import shutil; "
        "print(Parts().has_litert(), shutil.which('npm'), shutil.which('node'))"
    )
    assert docker("run", "--rm", "--entrypoint", "python", IMAGE, "-c", script).split() == ["True", "None", "None"]


def test_the_image_is_no_larger_than_its_limit_and_cannot_train(page_built: None) -> None:
    size_mb = int(docker("image", "inspect", "-f", "{{.Size}}", IMAGE)) / 1e6
    print(f"\npage: {size_mb:.0f} MB (limit {LIMIT_MB})")
    assert size_mb <= LIMIT_MB
    script = "ls /venv/lib/python3.12/site-packages /app/trainer"
    listed = docker("run", "--rm", "--entrypoint", "sh", IMAGE, "-c", script).split()
    assert {"ai_edge_litert", "cv2", "inference"} <= set(listed)
    assert not {"tensorflow", "keras", "matplotlib", "training", "network"} & set(listed)


def test_a_photo_of_many_pixels_is_looked_at_where_a_browser_cannot(looking: tuple[Stack, ServedPage]) -> None:
    stack, page = looking
    model = make_exported().forms["int8"]
    Storage(str(stack.store)).write(RunPaths("tiny").int8, model)
    coarse = np.random.default_rng(0).integers(30, 220, (6, 8, 3)).astype(np.uint8)
    photo = cv2.resize(coarse, (8000, 6000), interpolation=cv2.INTER_CUBIC)  # 48 million pixels: of 50 at most
    jpeg = cv2.imencode(".jpg", photo)[1].tobytes()
    request = Request(f"{page.url}/runs/tiny/seen.json", jpeg, {"Cookie": _open(stack, page)})
    with urlopen(request, timeout=120) as answer:
        told = json.loads(answer.read())
    again = decode_picture(jpeg, "photo", print)
    assert again is not None
    seen = Detector(model, is_ours=True).detect(again)
    assert (told["width"], told["height"]) == (8000, 6000)
    assert [one["class_id"] for one in told["seen"]] == seen.class_ids.tolist()
    np.testing.assert_allclose([one["score"] for one in told["seen"]], seen.scores)
